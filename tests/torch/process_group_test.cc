// Actions that the other backend's thread must not take on a collective that went through ours
// (process_group.h).
#include "torch/distributed/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace innkeeper::torch_layer {
namespace {

using c10d::Work;
using Future = c10::ivalue::Future;
using WorkPtr = c10::intrusive_ptr<Work>;

// The thread that destroyed the last work; default id: none yet.
std::atomic<std::thread::id> dropped_on;
std::atomic<int> alive = 0;

class OtherWork final : public Work {
 public:
  OtherWork() { ++alive; }
  ~OtherWork() override {
    --alive;
    dropped_on = std::this_thread::get_id();
  }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }
  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }

 private:
  c10::intrusive_ptr<Future> future_ =
      c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
};

// Acts as Gloo: a thread ends each work, and releases it some time later.
class Other final : public c10d::Backend {
 public:
  Other() : c10d::Backend(0, 1) {}
  ~Other() override {
    if (thread_.joinable()) thread_.join();
  }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    return start(tensors);
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return start({}); }

  void let_go() {
    go_.test_and_set();
    go_.notify_all();
    thread_.join();
  }
  std::thread::id thread() const { return thread_.get_id(); }

 private:
  WorkPtr start(const std::vector<at::Tensor>& tensors) {
    auto work = c10::make_intrusive<OtherWork>();
    thread_ = std::thread([this, work, tensors = std::vector<at::Tensor>(tensors)]() mutable {
      work->getFuture()->markCompleted(c10::IValue(std::exchange(tensors, {})));
      go_.wait(false);
      work.reset();
    });
    return work;
  }

  std::thread thread_;
  std::atomic_flag go_;
};

template <class Start>
void expect_dropped_here(Start&& start) {
  dropped_on = std::thread::id();
  const auto other = c10::make_intrusive<Other>();
  auto ours = make_process_group(other);
  WorkPtr work = start(*ours);
  work->wait();
  EXPECT_TRUE(work->isSuccess());
  work.reset();
  other->let_go();
  EXPECT_EQ(dropped_on.load(), std::thread::id()) << "on the other backend's thread, which lets go last";
  ours.reset();
  EXPECT_EQ(dropped_on.load(), std::this_thread::get_id());
}

TEST(ProcessGroup, AWorkIsNotDroppedByTheOtherBackendsThread) {
  std::vector<at::Tensor> tensors{at::ones({4})};
  expect_dropped_here([&](c10d::Backend& group) { return group.allreduce(tensors); });
  expect_dropped_here([](c10d::Backend& group) { return group.barrier(); });
}

TEST(ProcessGroup, NoWorksPileUp) {
  class AtOnce final : public c10d::Backend {
   public:
    AtOnce() : c10d::Backend(0, 1) {}
    WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
      auto work = c10::make_intrusive<OtherWork>();
      work->getFuture()->markCompleted(c10::IValue(tensors));
      return work;
    }
  };
  const auto ours = make_process_group(c10::make_intrusive<AtOnce>());
  std::vector<at::Tensor> tensors{at::ones({4})};
  for (int round = 0; round < 3000; ++round) {
    ours->allreduce(tensors)->wait();
    ASSERT_LE(alive, 3) << "in round " << round;
  }
}

}  // namespace
}  // namespace innkeeper::torch_layer
