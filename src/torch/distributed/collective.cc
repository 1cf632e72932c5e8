#include "torch/distributed/collective.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/thread_annotations.h"

namespace innkeeper::torch_layer {
namespace {

using c10d::OpType;
using c10d::Work;
using Future = c10::ivalue::Future;
using Tensors = std::vector<at::Tensor>;

// The other backend's future; null for a work that has none (Gloo's reduce-scatter).
c10::intrusive_ptr<Future> future_of(Work& work) {
  try {
    return work.getFuture();
  } catch (const c10::Error&) {
    return {};
  }
}

// Running collectives, so that a program that drops a work destroys no tensor that the other backend's thread
// still needs. Also the other backend's works, until its thread has released them.
class UnderWay {
 public:
  static UnderWay& all() {
    static auto* const all = new UnderWay;  // Never destroyed: works end at exit too.
    return *all;
  }
  void add(const std::shared_ptr<Collective>& held) {
    drop_those_left();
    MutexLock lock(mutex_);
    held_.push_back(held);
  }
  void keep(WorkPtr work) {
    MutexLock lock(mutex_);
    works_.push_back(std::move(work));
  }
  // Destroys the ended collectives and works after it has released the lock, because tensors' destructors may
  // call any code.
  void drop_those_left() {
    drop_held();
    drop_works();
  }

 private:
  void drop_held() {
    std::vector<std::shared_ptr<Collective>> left;
    MutexLock lock(mutex_);
    left = take(held_, [](const auto& each) { return each->left.load(std::memory_order_acquire); });
  }
  void drop_works() {
    std::vector<WorkPtr> ours_alone;
    MutexLock lock(mutex_);
    ours_alone = take(works_, [](const auto& each) { return each.use_count() == 1; });
  }

  template <class T, class Is>
  static std::vector<T> take(std::vector<T>& from, Is&& is) {
    const auto first = std::partition(from.begin(), from.end(), [&](const T& each) { return !is(each); });
    std::vector<T> taken(std::make_move_iterator(first), std::make_move_iterator(from.end()));
    from.erase(first, from.end());
    return taken;
  }

  Mutex mutex_;  // Leaf lock.
  std::vector<std::shared_ptr<Collective>> held_ IK_GUARDED_BY(mutex_);
  std::vector<WorkPtr> works_ IK_GUARDED_BY(mutex_);
};

// A work. If there is no notice of the other work's end, this work ends when the program waits for it or
// drops it.
class CollectiveWork final : public Work {
 public:
  CollectiveWork(int rank, OpType type, std::shared_ptr<Collective> held, Ends ends)
      : Work(rank, type), held_(std::move(held)) {
    held_->value = c10::IValue(held_->outputs);
    const auto theirs = ends == Ends::by_its_future ? future_of(*held_->inner) : nullptr;
    ends_by_itself_ = ends == Ends::by_a_watcher || theirs != nullptr;
    if (ends_by_itself_) UnderWay::all().add(held_);
    if (theirs == nullptr) return;
    theirs->addCallback([held = held_.get()](
                            Future& ended) { held->end(ended.hasError() ? ended.exception_ptr() : nullptr); },
                        /*uses_future=*/false);
  }
  ~CollectiveWork() override {
    if (ends_by_itself_) {
      held_.reset();
      UnderWay::all().drop_those_left();
      return;
    }
    if (held_->future->completed()) return;
    try {
      held_->inner->wait();
    } catch (const std::exception&) {  // The caller did not request the result.
    }
  }

  bool isCompleted() override {
    return ends_by_itself_ ? held_->future->completed() : held_->inner->isCompleted();
  }
  bool isSuccess() const override { return held_->future->completed() && !held_->future->hasError(); }
  std::exception_ptr exception() const override {
    return held_->future->completed() ? held_->future->exception_ptr() : nullptr;
  }
  Tensors result() override { return held_->outputs; }
  void synchronize() override { wait(kNoTimeout); }
  // Passes the timeout to the other work's wait; the other work's future is fulfilled a moment later.
  bool wait(std::chrono::milliseconds timeout) override {
    Future& future = *held_->future;
    if (ends_by_itself_) {
      const bool done = held_->inner->wait(timeout);
      future.waitAndThrow();
      held_->left.wait(false);
      return done;
    }
    if (future.completed()) return true;
    const bool done = held_->inner->wait(timeout);
    std::exception_ptr error = held_->collect();
    held_->lent.give_back();
    if (error) std::rethrow_exception(error);
    future.markCompleted(std::move(held_->value));
    return done;
  }
  void abort() override { held_->inner->abort(); }
  c10::intrusive_ptr<Future> getFuture() override {
    if (!ends_by_itself_) wait(kNoTimeout);
    return held_->future;
  }
  uint64_t getSequencenumber() const override { return held_->inner->getSequencenumber(); }

 private:
  std::shared_ptr<Collective> held_;
  bool ends_by_itself_ = false;
};

}  // namespace

Collective::~Collective() {
  if (inner != nullptr) UnderWay::all().keep(std::move(inner));
}

std::exception_ptr Collective::collect() {
  try {
    lent.collect();
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

void Collective::end(std::exception_ptr error) {
  if (!error) error = collect();
  lent.give_back();
  if (error) {
    future->setError(error);
  } else {
    future->markCompleted(std::move(value));
  }
  left.store(true, std::memory_order_release);
  left.notify_all();
}

WorkPtr look_after(int rank, OpType type, std::shared_ptr<Collective> collective, Ends ends) {
  return c10::make_intrusive<CollectiveWork>(rank, type, std::move(collective), ends);
}

void drop_ended_collectives() { UnderWay::all().drop_those_left(); }

}  // namespace innkeeper::torch_layer
