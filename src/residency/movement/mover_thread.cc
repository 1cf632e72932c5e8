#include "residency/movement/mover_thread.h"

#include <algorithm>
#include <exception>
#include <string>
#include <system_error>

#include "base/log.h"
#include "base/quiet_thread.h"

namespace innkeeper {

void MoverThread::start() {
  const auto& nodes = table_.nodes();
  MoveSignal& signal = table_.signal();
  signal.polls_ =
      std::any_of(nodes.begin(), nodes.end(), [](const auto& at) { return at->device->works_unseen(); });
  if ((table_.disk() == kNoNode && !signal.polls_) || thread_.joinable()) return;
  {
    TableLock lock(table_);
    wanted_ = true;
  }
  try {
    thread_ = quiet_thread([this] { run(); });
  } catch (const std::system_error& error) {
    log(LogLevel::warn, std::string("no thread for moves that go on by themselves: ") + error.what());
    return;
  }
  if (table_.disk() == kNoNode) return;
  table_.device(table_.disk()).set_listener([this] {
    if (!table_.signal().is_needed()) return;
    TableLock lock(table_);
    table_.signal().raise();
  });
}

void MoverThread::stop() {
  if (table_.disk() != kNoNode) table_.device(table_.disk()).set_listener(nullptr);
  {
    TableLock lock(table_);
    wanted_ = false;
    table_.signal().condition_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

// A link of a device that is lost is free for no move.
bool MoverThread::polls_links() const {
  const auto& nodes = table_.nodes();
  return table_.signal().polls_ && std::any_of(nodes.begin(), nodes.end(), [](const auto& at) {
           return at->device->works_unseen() && !at->device->is_lost() &&
                  at->in.waiting() + at->out.waiting() != 0;
         });
}

bool MoverThread::may_help() const {
  const auto& nodes = table_.nodes();
  return std::all_of(nodes.begin(), nodes.end(), [](const auto& at) { return at->device->may_be_helped(); });
}

void MoverThread::run() {
  for (const auto& at : table_.nodes()) at->device->begin_helping();
  MoveSignal& signal = table_.signal();
  TableLock lock(table_);
  while (wanted_) {
    if (!signal.raised_) {
      if (!polls_links()) {
        signal.sleeps_ = true;
        lock.wait(signal.condition_);
        signal.sleeps_ = false;
        continue;
      }
      lock.wait_for(signal.condition_, kLinkPoll);
    }
    signal.raised_ = false;
    for (size_t rounds = work_.rounds(); rounds > 0; --rounds) {  // One wake may stand for every move.
      while (wanted_ && (rests_ != 0 || !may_help())) lock.wait_for(signal.condition_, kLinkPoll);
      if (!wanted_) return;
      works_ = true;
      lock.unlock();
      try {
        work_.advance_moves();
      } catch (const std::exception& error) {  // Such as no heap: the program's next operator meets it again.
        log(LogLevel::warn, std::string("a move did not go on by itself: ") + error.what());
      }
      lock.lock();
      works_ = false;
      table_.notify();
    }
  }
}

MoverThread::Rest::Rest(MoverThread& thread) : thread_(thread) {
  ++thread_.rests_;
  while (thread_.works_) thread_.table_.wait_change();
}

}  // namespace innkeeper
