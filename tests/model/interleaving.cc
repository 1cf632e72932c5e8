#include "model/interleaving.h"

#include <cstring>

#include "base/check.h"
#include "base/test_point.h"

namespace innkeeper::test {
namespace {

Interleaving* active = nullptr;
thread_local size_t own_lane = SIZE_MAX;

}  // namespace

Interleaving::Interleaving(size_t lanes, uint64_t seed) : work_(lanes), random_(seed) {
  IK_CHECK(active == nullptr);
  active = this;
  test_point.store([](const char* name) { active->point(std::strcmp(name, "wait") == 0); });
  for (size_t lane = 0; lane < lanes; ++lane) wake_.push_back(std::make_unique<std::condition_variable>());
  for (size_t lane = 0; lane < lanes; ++lane) threads_.emplace_back([this, lane] { live(lane); });
}

Interleaving::~Interleaving() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (auto& wake : wake_) wake->notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  test_point.store(nullptr);
  active = nullptr;
}

void Interleaving::live(size_t lane) {
  own_lane = lane;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_[lane]->wait(lock, [&] { return current_ == lane || ending_; });
    if (ending_) return;
    lock.unlock();
    work_[lane]();
    lock.lock();
    work_[lane] = nullptr;
    waits_ = 0;
    current_ = choose(lane, true);
    if (current_ == kNobody || current_ == lane) {
      current_ = kNobody;
      done_.notify_all();
    } else {
      wake_[current_]->notify_all();
    }
  }
}

void Interleaving::run(std::vector<std::function<void()>> work) {
  std::unique_lock lock(mutex_);
  work_ = std::move(work);
  current_ = choose(kNobody, false);
  if (current_ == kNobody) return;
  wake_[current_]->notify_all();
  done_.wait(lock, [this] { return current_ == kNobody; });
}

// A lane that has work: another than `self` if there is one and `self` waits; kNobody if no lane has work.
size_t Interleaving::choose(size_t self, bool waits) {
  std::vector<size_t> able;
  for (size_t lane = 0; lane < work_.size(); ++lane) {
    if (work_[lane] && !(waits && lane == self)) able.push_back(lane);
  }
  if (able.empty()) return self != kNobody && work_[self] ? self : kNobody;
  return able[random_() % able.size()];
}

void Interleaving::point(bool waits) {
  const size_t self = own_lane;
  if (self == SIZE_MAX) {
    if (waits) std::this_thread::yield();
    return;
  }
  std::unique_lock lock(mutex_);
  waits_ = waits ? waits_ + 1 : 0;
  IK_CHECK(waits_ < kPatience, "a deadlock: every thread waits for another");
  if (!waits && random_() % 2 == 0) return;
  const size_t next = choose(self, waits);
  if (next == self) return;
  current_ = next;
  wake_[next]->notify_all();
  wake_[self]->wait(lock, [&] { return current_ == self; });
}

}  // namespace innkeeper::test
