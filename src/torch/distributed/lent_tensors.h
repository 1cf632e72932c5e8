// Managed tensors that a collective uses outside of any operator. They are exposed as real tensors over the
// same bytes at one node, the host or a GPU. They are pinned there until the collective has ended, on any
// thread.
//
// A real tensor here only borrows an address. Its holder may keep it for longer than the bytes are pinned, as
// a collective's work does, and must not touch them then.
//
// An operator that needs such a block on another node, or that writes it, waits until the collective has
// ended.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <vector>

#include "residency/engine.h"

namespace innkeeper::torch_layer {

class LentTensors {
 public:
  LentTensors() = default;
  ~LentTensors() { give_back(); }
  LentTensors(const LentTensors&) = delete;
  LentTensors& operator=(const LentTensors&) = delete;

  // Adds tensors to expose. Requires: before bring(). A tensor that is not managed, or has no bytes, is
  // exposed as another tensor of the same data. A sparse tensor is exposed as a copy on the host. Throws for
  // other layouts.
  void add(const std::vector<at::Tensor>& tensors, bool written);
  // Fetches all tensors to `node` and pins them. Throws torch.OutOfMemoryError with the byte counts; then
  // nothing is pinned. On a GPU, the calling thread's current stream may use them from then on.
  void bring(NodeId node);
  // As bring(), on the host.
  void bring_to_host();
  // The real tensors of the n-th add(), in its order.
  std::vector<at::Tensor>& of(size_t n) { return lists_[n].real; }
  // Copies the results in copies to the sparse tensors. Requires: after the collective, before give_back(),
  // on any thread. Throws torch.OutOfMemoryError.
  void collect();
  // Unpins the tensors, on any thread. Further calls do nothing.
  void give_back() noexcept;

 private:
  struct List {
    std::vector<at::Tensor> managed;
    std::vector<at::Tensor> real;
    bool written;
  };
  std::vector<List> lists_;
  NodeId node_ = kNoNode;
  std::vector<Access> accesses_;  // One access for each block.
  std::atomic<bool> pinned_{false};
};

}  // namespace innkeeper::torch_layer
