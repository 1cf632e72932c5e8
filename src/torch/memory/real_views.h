// Real tensors over a block's real storage on one node, kept for the next operator that needs the same
// geometry. So an operator whose operands are resident builds no real tensor.
//
// An operator takes a view out while it runs on it, so two running operators never share one. It puts the
// view back only if the view has no other owner. A kernel may have changed a view in any way, so take()
// compares everything that matters.
//
// A view does not own the memory. The storage stays the same across evictions, so views stay valid.
//
// Thread safety: take, keep and count from any thread; clear only after every other use of the block.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <atomic>

namespace innkeeper::torch_layer {

class RealViews {
 public:
  RealViews() = default;
  ~RealViews() { clear(); }
  RealViews(const RealViews&) = delete;
  RealViews& operator=(const RealViews&) = delete;

  // A view over `storage` with the geometry, type and view bits of `handle`, or null. `inference`: the view
  // must have been made in InferenceMode.
  c10::intrusive_ptr<c10::TensorImpl> take(const c10::TensorImpl& handle, const c10::StorageImpl& storage,
                                           bool inference);
  // Puts back a tensor over the block's real storage, if it is the last reference. It replaces a kept view if
  // there is no free slot. `alone`: no other thread knows of the block yet.
  void keep(c10::intrusive_ptr<c10::TensorImpl> view, const c10::StorageImpl& storage, bool alone);
  // Number of references to the storage that are kept here.
  uint32_t count() const {
    uint32_t kept = 0;
    for (const auto& view : views_) kept += view.load(std::memory_order_acquire) != nullptr ? 1 : 0;
    return kept;
  }
  void clear();

 private:
  // Views for each node; two, because programs often use a weight both as it is and transposed.
  static constexpr size_t kViews = 2;

  void put(std::atomic<c10::TensorImpl*>& place, c10::TensorImpl* view);

  std::array<std::atomic<c10::TensorImpl*>, kViews> views_{};
};

}  // namespace innkeeper::torch_layer
