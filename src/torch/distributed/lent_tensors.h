// Managed tensors that a collective works on outside of any operator: real tensors at one node, the host or a
// card, over the same bytes, pinned there until the collective has ended, on whatever thread that is.
//
// A real tensor here only borrows an address. Who is given one may keep it for longer than the bytes are
// pinned, as a collective's work does, and must not touch them then.
//
// An operator that needs such a block elsewhere, or that writes it, waits until the collective has ended.
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

  // Before bring(): what is to be lent. A tensor that is not managed, or has no bytes, is lent as another
  // tensor of the same data, and a sparse one as a copy on the host. Throws for other layouts.
  void add(const std::vector<at::Tensor>& tensors, bool written);
  // Brings all to `node` and pins them. Throws torch.OutOfMemoryError with the numbers; nothing is pinned
  // then. On a card the calling thread's current stream has them from then on.
  void bring(NodeId node);
  // The same on the host.
  void bring_to_host();
  // The real tensors of the n-th add(), in its order.
  std::vector<at::Tensor>& of(size_t n) { return lists_[n].real; }
  // After the collective, before give_back(), on any thread: what was written into copies goes to the sparse
  // tensors. Throws torch.OutOfMemoryError.
  void collect();
  // Once, on any thread; again it does nothing.
  void give_back() noexcept;

 private:
  struct List {
    std::vector<at::Tensor> managed;
    std::vector<at::Tensor> real;
    bool written;
  };
  std::vector<List> lists_;
  NodeId node_ = kNoNode;
  std::vector<Access> accesses_;  // each block once
  std::atomic<bool> pinned_{false};
};

}  // namespace innkeeper::torch_layer
