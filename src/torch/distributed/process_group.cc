#include "torch/distributed/process_group.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include "base/thread_annotations.h"
#include "torch/distributed/lent_tensors.h"
#include "torch/fork.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using c10d::OpType;
using c10d::Work;
using Future = c10::ivalue::Future;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<Work>;

// The other backend's future; null for a work that has none (Gloo's reduce-scatter).
c10::intrusive_ptr<Future> future_of(Work& work) {
  try {
    return work.getFuture();
  } catch (const c10::Error&) {
    return {};
  }
}

// What a collective under way holds on to. References to Python's objects are in it, and only threads that
// call us may drop those: the other backend's would ask for Python's lock, and where the interpreter is
// ending that ends the process. The tensors may be Python's; the other's work keeps its caller's thread-local
// state.
struct Held {
  Held() = default;
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // What went wrong, if anything.
  std::exception_ptr collect() {
    try {
      lent.collect();
      return nullptr;
    } catch (const std::exception&) {
      return std::current_exception();
    }
  }

  WorkPtr inner;
  LentTensors lent;
  Tensors outputs;
  c10::IValue value;  // of the future: the outputs
  c10::intrusive_ptr<Future> future =
      c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  std::atomic<bool> left{false};  // by the other backend's thread: it touches nothing of this any more
};

// Those under way, so that who drops a work drops nothing that the other backend's thread still needs; and
// the other backend's works, until its thread has dropped them.
class UnderWay {
 public:
  static UnderWay& all() {
    static auto* const all = new UnderWay;  // never destroyed: works end at exit too
    return *all;
  }
  void add(const std::shared_ptr<Held>& held) {
    drop_those_left();
    MutexLock lock(mutex_);
    held_.push_back(held);
  }
  void keep(WorkPtr work) {
    MutexLock lock(mutex_);
    works_.push_back(std::move(work));
  }
  // What is dropped is dropped after the lock: destructors of tensors do anything.
  void drop_those_left() {
    drop_held();
    drop_works();
  }

 private:
  void drop_held() {
    std::vector<std::shared_ptr<Held>> left;
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

  Mutex mutex_;  // a leaf
  std::vector<std::shared_ptr<Held>> held_ IK_GUARDED_BY(mutex_);
  std::vector<WorkPtr> works_ IK_GUARDED_BY(mutex_);
};

Held::~Held() {
  if (inner != nullptr) UnderWay::all().keep(std::move(inner));
}

// A collective under way. It ends by the other backend's future, on that one's thread; without such a future
// when it is waited for, or dropped.
class CollectiveWork final : public Work {
 public:
  CollectiveWork(int rank, OpType type, std::shared_ptr<Held> held)
      : Work(rank, type), held_(std::move(held)) {
    held_->value = c10::IValue(held_->outputs);
    const auto theirs = future_of(*held_->inner);
    if (theirs == nullptr) return;
    ends_by_itself_ = true;
    UnderWay::all().add(held_);
    theirs->addCallback(
        [held = held_.get()](Future& ended) {
          std::exception_ptr error = ended.hasError() ? ended.exception_ptr() : held->collect();
          held->lent.give_back();
          if (error) {
            held->future->setError(error);
          } else {
            held->future->markCompleted(std::move(held->value));
          }
          held->left.store(true, std::memory_order_release);
          held->left.notify_all();
        },
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
    } catch (const std::exception&) {  // nobody asked
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
  // The other's wait knows of timeouts; its future is fulfilled a moment later.
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
  std::shared_ptr<Held> held_;
  bool ends_by_itself_ = false;
};

// A message under way, by a copy on the host.
class MessageWork final : public Work {
 public:
  // `target`: where what is received goes; undefined for what is sent.
  MessageWork(int rank, OpType type, WorkPtr inner, Tensor copy, Tensor target)
      : Work(rank, type), inner_(std::move(inner)), copy_(std::move(copy)), target_(std::move(target)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  Tensors result() override { return target_.defined() ? Tensors{target_} : Tensors(); }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner_->wait(timeout);
    if (done && target_.defined() && !std::exchange(received_, true)) {
      const at::NoGradGuard values_alone;
      target_.copy_(copy_);
    }
    return done;
  }
  void abort() override { inner_->abort(); }

 private:
  const WorkPtr inner_;
  const Tensor copy_;
  Tensor target_;
  bool received_ = false;
};

class ProcessGroup final : public c10d::Backend {
 public:
  explicit ProcessGroup(c10::intrusive_ptr<c10d::Backend> inner)
      : c10d::Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  ~ProcessGroup() override {
    inner_.reset();  // ends what is under way
    UnderWay::all().drop_those_left();
  }

  const std::string getBackendName() const override { return "innkeeper"; }  // NOLINT: c10d's own signature

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return run(OpType::BROADCAST, {{&tensors, true}}, tensors,
               [&](LentTensors& lent) { return inner_->broadcast(lent.of(0), options); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run(OpType::ALLREDUCE, {{&tensors, true}}, tensors,
               [&](LentTensors& lent) { return inner_->allreduce(lent.of(0), options); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return run(OpType::ALLREDUCE_COALESCED, {{&tensors, true}}, tensors,
               [&](LentTensors& lent) { return inner_->allreduce_coalesced(lent.of(0), options); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return run(OpType::REDUCE, {{&tensors, true}}, tensors,
               [&](LentTensors& lent) { return inner_->reduce(lent.of(0), options); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return run_lists(
        OpType::ALLGATHER, outputs, true, inputs, false,
        [&](std::vector<Tensors>& outs, Tensors& ins) { return inner_->allgather(outs, ins, options); });
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return run_lists(OpType::ALLGATHER_COALESCED, outputs, true, inputs, false,
                     [&](std::vector<Tensors>& outs, Tensors& ins) {
                       return inner_->allgather_coalesced(outs, ins, options);
                     });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    Tensors out{output}, in{input};
    return run(OpType::_ALLGATHER_BASE, {{&out, true}, {&in, false}}, out, [&](LentTensors& lent) {
      return inner_->_allgather_base(lent.of(0).front(), lent.of(1).front(), options);
    });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return run(OpType::COALESCED, {{&outputs, true}, {&inputs, false}}, outputs, [&](LentTensors& lent) {
      return inner_->allgather_into_tensor_coalesced(lent.of(0), lent.of(1), options);
    });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return run_lists(
        OpType::GATHER, outputs, true, inputs, false,
        [&](std::vector<Tensors>& outs, Tensors& ins) { return inner_->gather(outs, ins, options); });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return run_lists(
        OpType::SCATTER, inputs, false, outputs, true,
        [&](std::vector<Tensors>& ins, Tensors& outs) { return inner_->scatter(outs, ins, options); });
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return run_lists(
        OpType::REDUCE_SCATTER, inputs, false, outputs, true,
        [&](std::vector<Tensors>& ins, Tensors& outs) { return inner_->reduce_scatter(outs, ins, options); });
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    Tensors out{output}, in{input};
    return run(OpType::_REDUCE_SCATTER_BASE, {{&out, true}, {&in, false}}, out, [&](LentTensors& lent) {
      return inner_->_reduce_scatter_base(lent.of(0).front(), lent.of(1).front(), options);
    });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return run(OpType::COALESCED, {{&outputs, true}, {&inputs, false}}, outputs, [&](LentTensors& lent) {
      return inner_->reduce_scatter_tensor_coalesced(lent.of(0), lent.of(1), options);
    });
  }
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    Tensors out{output}, in{input};
    return run(OpType::ALLTOALL_BASE, {{&out, true}, {&in, false}}, out, [&](LentTensors& lent) {
      return inner_->alltoall_base(lent.of(0).front(), lent.of(1).front(), output_sizes, input_sizes,
                                   options);
    });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return run(OpType::ALLTOALL, {{&outputs, true}, {&inputs, false}}, outputs,
               [&](LentTensors& lent) { return inner_->alltoall(lent.of(0), lent.of(1), options); });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    Tensors copies = on_host(tensors, /*with_data=*/true);
    WorkPtr work = inner_->send(copies, to, tag);
    return c10::make_intrusive<MessageWork>(getRank(), OpType::SEND, std::move(work), copies.front(),
                                            Tensor());
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    Tensors copies = on_host(tensors, /*with_data=*/false);
    WorkPtr work = inner_->recv(copies, from, tag);
    return c10::make_intrusive<MessageWork>(getRank(), OpType::RECV, std::move(work), copies.front(),
                                            tensors.front());
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    Tensors copies = on_host(tensors, /*with_data=*/false);
    WorkPtr work = inner_->recvAnysource(copies, tag);
    return c10::make_intrusive<MessageWork>(getRank(), OpType::RECVANYSOURCE, std::move(work), copies.front(),
                                            tensors.front());
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    c10d::BarrierOptions theirs = options;
    theirs.device = c10::Device(c10::kCPU);
    theirs.device_ids.clear();
    return run(OpType::BARRIER, {}, {}, [&](LentTensors&) { return inner_->barrier(theirs); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    inner_->monitoredBarrier(options, wait_for_all);
  }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }

 private:
  struct Use {
    const Tensors* tensors;
    bool written;
  };

  template <class Start>
  WorkPtr run(OpType type, std::initializer_list<Use> uses, const Tensors& outputs, Start&& start) {
    refuse_in_forked_child();
    auto held = std::make_shared<Held>();
    for (const Use& use : uses) held->lent.add(*use.tensors, use.written);
    held->lent.bring();
    held->inner = start(held->lent);
    held->outputs = outputs;
    return c10::make_intrusive<CollectiveWork>(getRank(), type, std::move(held));
  }

  // For those that take a list for each rank beside a list.
  template <class Start>
  WorkPtr run_lists(OpType type, const std::vector<Tensors>& lists, bool lists_written, const Tensors& list,
                    bool list_written, Start&& start) {
    refuse_in_forked_child();
    auto held = std::make_shared<Held>();
    LentTensors& lent = held->lent;
    for (const Tensors& each : lists) lent.add(each, lists_written);
    lent.add(list, list_written);
    lent.bring();
    std::vector<Tensors> reals;
    for (size_t i = 0; i < lists.size(); ++i) reals.push_back(lent.of(i));
    held->inner = start(reals, lent.of(lists.size()));
    Tensors& outputs = held->outputs;
    if (list_written) outputs = list;
    for (const Tensors& each : lists) {
      if (lists_written) outputs.insert(outputs.end(), each.begin(), each.end());
    }
    return c10::make_intrusive<CollectiveWork>(getRank(), type, std::move(held));
  }

  static Tensors on_host(const Tensors& tensors, bool with_data) {
    refuse_in_forked_child();
    TORCH_CHECK(tensors.size() == 1, "a message is one tensor, got ", tensors.size());
    const Tensor& tensor = tensors.front();
    TORCH_CHECK(tensor.is_contiguous(), "a message is a contiguous tensor");
    return {with_data ? tensor.detach().cpu()
                      : at::empty(tensor.sizes(), tensor.options().device(c10::kCPU))};
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_process_group(c10::intrusive_ptr<c10d::Backend> inner) {
  return c10::make_intrusive<ProcessGroup>(std::move(inner));
}

}  // namespace innkeeper::torch_layer
