#include "torch/distributed/lent_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "torch/accelerator/compute_queue.h"
#include "torch/errors.h"
#include "torch/memory/handle.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {

void LentTensors::add(const std::vector<at::Tensor>& tensors, bool written) {
  for (const at::Tensor& tensor : tensors) {
    if (!is_managed(tensor) || tensor.layout() == c10::kSparse) continue;
    TORCH_CHECK(tensor.layout() == c10::kStrided, "a collective on a managed tensor of layout ",
                tensor.layout(), " is not there: to_dense() makes one that collectives take");
    Block* const block = block_of(tensor);
    if (block->size() == Bytes(0)) continue;
    const auto same = [block](const Access& access) { return access.block == block; };
    if (const auto before = std::find_if(accesses_.begin(), accesses_.end(), same);
        before != accesses_.end()) {
      before->write |= written;
    } else {
      accesses_.push_back({block, written, false});
    }
  }
  lists_.push_back({tensors, {}, written});
}

void LentTensors::bring_to_host() {
  if (!lists_.empty()) bring(runtime().engine().host());  // A barrier has no tensors and needs no runtime.
}

void LentTensors::bring(NodeId node) {
  Runtime& machine = runtime();
  const c10::Device device = machine.backend(node).device;
  if (!device.is_cpu()) order_compute_queue_after_program(device);
  throw_if_error(machine.engine().pin_async(node, accesses_), "a collective");
  node_ = node;
  pinned_.store(true);
  if (!device.is_cpu()) order_program_after_compute_queue(device);
  for (List& list : lists_) {
    for (const at::Tensor& tensor : list.managed) {
      if (!is_managed(tensor)) {
        list.real.push_back(tensor.detach());  // The other backend releases it on a thread of its own.
        continue;
      }
      if (tensor.layout() == c10::kSparse) {
        list.real.push_back(tensor.detach().cpu());
        continue;
      }
      const at::TensorOptions options = tensor.options().device(device);
      Block* const block = block_of(tensor);
      if (block->size() == Bytes(0)) {
        list.real.push_back(at::empty_strided(tensor.sizes(), tensor.strides(), options));
        continue;
      }
      char* const bytes = static_cast<char*>(block->data(node)) +
                          tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
      list.real.push_back(at::for_blob(bytes, tensor.sizes())
                              .strides(tensor.strides())
                              .options(options)
                              .target_device(device)
                              .make_tensor());
    }
  }
}

void LentTensors::collect() {
  const at::NoGradGuard values_alone;
  for (const List& list : lists_) {
    for (size_t i = 0; list.written && i < list.managed.size(); ++i) {
      const at::Tensor& tensor = list.managed[i];
      if (is_managed(tensor) && tensor.layout() == c10::kSparse) tensor.copy_(list.real[i]);
    }
  }
}

void LentTensors::give_back() noexcept {
  if (!pinned_.exchange(false)) return;
  Runtime* const running = runtime_if_started();
  if (running == nullptr) return;  // In a child of fork().
  running->engine().unpin_async(node_, accesses_);
}

}  // namespace innkeeper::torch_layer
