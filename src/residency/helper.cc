// The engine's own thread: it takes moves on while the program does nothing of which the engine hears.
#include <algorithm>
#include <exception>
#include <string>
#include <system_error>

#include "base/log.h"
#include "base/quiet_thread.h"
#include "residency/engine.h"

namespace innkeeper {
namespace {

// The helper begins nothing while one of these lives.
class Rest {
 public:
  explicit Rest(int& rests) : rests_(rests) { ++rests_; }
  ~Rest() { --rests_; }
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;

 private:
  int& rests_;
};

}  // namespace

void Engine::start_helper() {
  polls_ =
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& at) { return at->device->works_unseen(); });
  if ((disk_ == kNoNode && !polls_) || helper_.joinable()) return;
  {
    MutexLock lock(mutex_);
    helper_wanted_ = true;
  }
  try {
    helper_ = quiet_thread([this] { run_helper(); });
  } catch (const std::system_error& error) {
    log(LogLevel::warn, std::string("no thread for moves that go on by themselves: ") + error.what());
    return;
  }
  if (disk_ == kNoNode) return;
  device(disk_).set_listener([this] {
    if (under_way_.load(std::memory_order_relaxed) == 0) return;
    MutexLock lock(mutex_);
    wake_helper();
  });
}

void Engine::stop_helper() {
  if (disk_ != kNoNode) device(disk_).set_listener(nullptr);
  {
    MutexLock lock(mutex_);
    helper_wanted_ = false;
    landed_.notify_all();
  }
  if (helper_.joinable()) helper_.join();
}

void Engine::wake_helper() {
  helper_has_work_ = true;
  landed_.notify_all();
}

// A link of a device that is lost is free for no move.
bool Engine::polls_links() const {
  return polls_ && std::any_of(nodes_.begin(), nodes_.end(), [](const auto& at) {
           return at->device->works_unseen() && !at->device->is_lost() &&
                  at->in.waiting() + at->out.waiting() != 0;
         });
}

bool Engine::may_be_helped() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [](const auto& at) { return at->device->may_be_helped(); });
}

void Engine::run_helper() {
  for (const auto& at : nodes_) at->device->begin_helping();
  MutexLock lock(mutex_);
  while (helper_wanted_) {
    if (!helper_has_work_) {
      if (!polls_links()) {
        helper_sleeps_ = true;
        landed_.wait(mutex_);
        helper_sleeps_ = false;
        continue;
      }
      landed_.wait_for(mutex_, kLinkPoll);
    }
    helper_has_work_ = false;
    for (size_t looks = watched_.size() / kLandedAtOnce + 1; looks > 0; --looks) {  // one wake may be for all
      while (helper_wanted_ && (helper_rests_ != 0 || !may_be_helped())) landed_.wait_for(mutex_, kLinkPoll);
      if (!helper_wanted_) return;
      helper_works_ = true;
      lock.unlock();
      try {
        advance_moves();
      } catch (const std::exception& error) {  // an observer's; the program's next operator meets it again
        log(LogLevel::warn, std::string("a move did not go on by itself: ") + error.what());
      }
      lock.lock();
      helper_works_ = false;
      changed_.notify_all();
    }
  }
}

// Puts all that waits for a link on its queue, also what the helper has in its hands.
void Engine::issue_waiting() {
  MutexLock lock(mutex_);
  const Rest rest(helper_rests_);
  while (helper_works_) wait_change();
  advance_links(Parts::all);
}

}  // namespace innkeeper
