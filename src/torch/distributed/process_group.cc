#include "torch/distributed/process_group.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "torch/distributed/collective.h"
#include "torch/distributed/gpu_collectives.h"
#include "torch/memory/handle.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using c10d::Backend;
using c10d::OpType;
using c10d::Work;
using Tensors = std::vector<Tensor>;

// The tensor as one dimension, if it is contiguous. For these operations NCCL takes any shapes with the right
// numbers of elements; Gloo cuts along the first dimension.
Tensor flat(const Tensor& x) { return x.is_contiguous() ? x.view({-1}) : x; }

// A message in transit, by a copy on the host.
class MessageWork final : public Work {
 public:
  // `target`: the tensor that receives the message; undefined for a sent message.
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

class ProcessGroup final : public Backend {
 public:
  ProcessGroup(c10::intrusive_ptr<Backend> inner, MakeGpus make_gpus)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        make_gpus_(std::move(make_gpus)) {}
  ~ProcessGroup() override {
    gpus_.reset();  // Both destructors end the running collectives.
    inner_.reset();
    drop_ended_collectives();
  }

  const std::string getBackendName() const override { return "innkeeper"; }  // NOLINT: c10d's own signature

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return run(OpType::BROADCAST, Way::gpus, {{&tensors, true}}, [&](Backend& other, LentTensors& lent) {
      return other.broadcast(lent.of(0), asynchronous(options));
    });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run(OpType::ALLREDUCE, way_of(options.reduceOp), {{&tensors, true}},
               [&](Backend& other, LentTensors& lent) {
                 return other.allreduce(lent.of(0), asynchronous(options));
               });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return run(
        OpType::ALLREDUCE_COALESCED, Way::host, {{&tensors, true}},
        [&](Backend& other, LentTensors& lent) { return other.allreduce_coalesced(lent.of(0), options); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return run(
        OpType::REDUCE, way_of(options.reduceOp), {{&tensors, true}},
        [&](Backend& other, LentTensors& lent) { return other.reduce(lent.of(0), asynchronous(options)); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return run_lists(OpType::ALLGATHER, Way::gpus, outputs, true, inputs, false,
                     [&](Backend& other, std::vector<Tensors>& outs, Tensors& ins) {
                       return other.allgather(outs, ins, asynchronous(options));
                     });
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return run_lists(OpType::ALLGATHER_COALESCED, Way::host, outputs, true, inputs, false,
                     [&](Backend& other, std::vector<Tensors>& outs, Tensors& ins) {
                       return other.allgather_coalesced(outs, ins, options);
                     });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    Tensors out{output}, in{input};
    return run(OpType::_ALLGATHER_BASE, Way::gpus, {{&out, true}, {&in, false}},
               [&](Backend& other, LentTensors& lent) {
                 Tensor whole = flat(lent.of(0).front()), part = flat(lent.of(1).front());
                 return other._allgather_base(whole, part, asynchronous(options));
               });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return run(OpType::COALESCED, Way::host, {{&outputs, true}, {&inputs, false}},
               [&](Backend& other, LentTensors& lent) {
                 return other.allgather_into_tensor_coalesced(lent.of(0), lent.of(1), options);
               });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return run_lists(OpType::GATHER, Way::host, outputs, true, inputs, false,
                     [&](Backend& other, std::vector<Tensors>& outs, Tensors& ins) {
                       return other.gather(outs, ins, options);
                     });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return run_lists(OpType::SCATTER, Way::host, inputs, false, outputs, true,
                     [&](Backend& other, std::vector<Tensors>& ins, Tensors& outs) {
                       return other.scatter(outs, ins, options);
                     });
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return run_lists(OpType::REDUCE_SCATTER, way_of(options.reduceOp), inputs, false, outputs, true,
                     [&](Backend& other, std::vector<Tensors>& ins, Tensors& outs) {
                       return other.reduce_scatter(outs, ins, asynchronous(options));
                     });
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    Tensors out{output}, in{input};
    return run(OpType::_REDUCE_SCATTER_BASE, way_of(options.reduceOp), {{&out, true}, {&in, false}},
               [&](Backend& other, LentTensors& lent) {
                 Tensor part = flat(lent.of(0).front()), whole = flat(lent.of(1).front());
                 return other._reduce_scatter_base(part, whole, asynchronous(options));
               });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return run(OpType::COALESCED, Way::host, {{&outputs, true}, {&inputs, false}},
               [&](Backend& other, LentTensors& lent) {
                 return other.reduce_scatter_tensor_coalesced(lent.of(0), lent.of(1), options);
               });
  }
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    Tensors out{output}, in{input};
    return run(OpType::ALLTOALL_BASE, Way::gpus, {{&out, true}, {&in, false}},
               [&](Backend& other, LentTensors& lent) {
                 return other.alltoall_base(lent.of(0).front(), lent.of(1).front(), output_sizes, input_sizes,
                                            asynchronous(options));
               });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return run(
        OpType::ALLTOALL, Way::host, {{&outputs, true}, {&inputs, false}},
        [&](Backend& other, LentTensors& lent) { return other.alltoall(lent.of(0), lent.of(1), options); });
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
    return run(OpType::BARRIER, Way::host, {},
               [&](Backend& other, LentTensors&) { return other.barrier(theirs); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    inner_->monitoredBarrier(options, wait_for_all);
  }
  void shutdown() override {
    make_gpus_ = nullptr;
    gpus_.reset();
    inner_->shutdown();
  }
  void abort() override {
    if (gpus_ != nullptr) gpus_->backend().abort();
    inner_->abort();
  }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }

 private:
  struct Use {
    const Tensors* tensors;
    bool written;
  };

  // Backends for a collective. Every process makes the same choice, because it depends only on the operation
  // and the types.
  enum class Way { host, gpus };

  static Way way_of(const c10d::ReduceOp& op) {
    return op.op_ <= c10d::ReduceOp::MAX ? Way::gpus : Way::host;  // NCCL has no operations on bits.
  }

  // NCCL returns a work only for asynchronous operations. For a synchronous call, c10d waits for the managed
  // work.
  template <class Options>
  static Options asynchronous(const Options& options) {
    Options theirs = options;
    theirs.asyncOp = true;
    return theirs;
  }

  static bool takes_gpus(const Tensors& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
      return is_managed(tensor) && tensor.layout() == c10::kStrided &&
             GpuCollectives::take(tensor.scalar_type());
    });
  }

  // The group's GPU backend, made by the first collective that may go between GPUs; null if there is none.
  GpuCollectives* gpus() {
    if (const MakeGpus make = std::exchange(make_gpus_, nullptr)) {
      if (std::optional<GpuBackend> made = make()) {
        const NodeId node = node_named(made->node, "torch.distributed");
        gpus_ =
            std::make_unique<GpuCollectives>(std::move(made->backend), node, runtime().backend(node).device);
      }
    }
    return gpus_.get();
  }

  // Exposes the collective's tensors, starts the other backend's work and looks after it.
  template <class Start>
  WorkPtr launch(OpType type, GpuCollectives* gpus, const std::shared_ptr<Collective>& collective,
                 Start&& start) {
    if (gpus == nullptr) {
      collective->lent.bring_to_host();
      collective->inner = start(*inner_);
      return look_after(getRank(), type, collective, Ends::by_its_future);
    }
    collective->lent.bring(gpus->node());
    const c10::DeviceGuard at(gpus->device());
    collective->inner = start(gpus->backend());
    WorkPtr work = look_after(getRank(), type, collective, Ends::by_a_watcher);
    gpus->watch(*collective);
    return work;
  }

  // Runs a collective on lists of tensors. The result consists of the written tensors.
  template <class Start>
  WorkPtr run(OpType type, Way way, const std::vector<Use>& uses, Start&& start) {
    refuse_in_forked_child();
    auto collective = std::make_shared<Collective>();
    bool on_gpus = way == Way::gpus;
    for (const auto& [tensors, written] : uses) {
      collective->lent.add(*tensors, written);
      on_gpus = on_gpus && takes_gpus(*tensors);
      Tensors& outputs = collective->outputs;
      if (written) outputs.insert(outputs.end(), tensors->begin(), tensors->end());
    }
    return launch(type, on_gpus ? gpus() : nullptr, collective,
                  [&](Backend& other) { return start(other, collective->lent); });
  }

  // Runs a collective that takes a list for each rank and one more list.
  template <class Start>
  WorkPtr run_lists(OpType type, Way way, const std::vector<Tensors>& lists, bool lists_written,
                    const Tensors& list, bool list_written, Start&& start) {
    std::vector<Use> uses;
    for (const Tensors& each : lists) uses.push_back({&each, lists_written});
    uses.push_back({&list, list_written});
    return run(type, way, uses, [&](Backend& other, LentTensors& lent) {
      std::vector<Tensors> reals;
      for (size_t i = 0; i < lists.size(); ++i) reals.push_back(lent.of(i));
      return start(other, reals, lent.of(lists.size()));
    });
  }

  static Tensors on_host(const Tensors& tensors, bool with_data) {
    refuse_in_forked_child();
    TORCH_CHECK(tensors.size() == 1, "a message is one tensor, got ", tensors.size());
    const Tensor& tensor = tensors.front();
    TORCH_CHECK(tensor.is_contiguous(), "a message is a contiguous tensor");
    return {with_data ? tensor.detach().cpu()
                      : at::empty(tensor.sizes(), tensor.options().device(c10::kCPU))};
  }

  c10::intrusive_ptr<Backend> inner_;
  MakeGpus make_gpus_;
  std::unique_ptr<GpuCollectives> gpus_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_process_group(c10::intrusive_ptr<c10d::Backend> inner,
                                                     MakeGpus make_gpus) {
  return c10::make_intrusive<ProcessGroup>(std::move(inner), std::move(make_gpus));
}

}  // namespace innkeeper::torch_layer
