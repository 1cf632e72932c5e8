// Real tensors over a block's real storage on one node, kept for the next operator that wants the same
// geometry: where operands are resident an operator builds none.
//
// A view is taken out while an operator runs on it, so two running operators never share one, and put back
// only when it has no other owner. Nothing is assumed of what a kernel did to it: all that matters is
// compared whenever a view is taken.
//
// What it is not: an owner of memory. The storage stays the same across evictions, so views stay good.
//
// Thread safety: take, keep and count from any thread; clear when no thread can use the block any more.
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

  // A view over `storage` with the geometry, type and view bits of `handle`, or null. `inference`: one made
  // in InferenceMode.
  c10::intrusive_ptr<c10::TensorImpl> take(const c10::TensorImpl& handle, const c10::StorageImpl& storage,
                                           bool inference);
  // Takes back a tensor over the block's real storage, if it is the last reference; replaces an older one
  // where all places are taken. `alone`: no other thread knows of the block yet.
  void keep(c10::intrusive_ptr<c10::TensorImpl> view, const c10::StorageImpl& storage, bool alone);
  // How many references to the storage are kept here.
  uint32_t count() const {
    uint32_t kept = 0;
    for (const auto& view : views_) kept += view.load(std::memory_order_acquire) != nullptr ? 1 : 0;
    return kept;
  }
  void clear();

 private:
  // A weight is used as it is and transposed.
  static constexpr size_t kViews = 2;

  void put(std::atomic<c10::TensorImpl*>& place, c10::TensorImpl* view);

  std::array<std::atomic<c10::TensorImpl*>, kViews> views_{};
};

}  // namespace innkeeper::torch_layer
