#include "torch/memory/real_views.h"

#include <typeinfo>
#include <utility>

#include "torch/memory/real_memory.h"

namespace innkeeper::torch_layer {
namespace {

bool fits(c10::TensorImpl& view, const c10::TensorImpl& handle, const c10::StorageImpl& storage,
          bool inference) {
  return view.unsafe_storage().unsafeGetStorageImpl() == &storage && view.dtype() == handle.dtype() &&
         same_geometry(view, handle) && view.is_wrapped_number() == handle.is_wrapped_number() &&
         view.is_inference() == inference;
}

}  // namespace

c10::intrusive_ptr<c10::TensorImpl> RealViews::take(const c10::TensorImpl& handle,
                                                    const c10::StorageImpl& storage, bool inference) {
  for (std::atomic<c10::TensorImpl*>& place : views_) {
    if (place.load(std::memory_order_relaxed) == nullptr) continue;
    // Owned by this thread alone from here on.
    c10::TensorImpl* view = place.exchange(nullptr, std::memory_order_acq_rel);
    if (view == nullptr) continue;
    if (fits(*view, handle, storage, inference)) return c10::intrusive_ptr<c10::TensorImpl>::reclaim(view);
    put(place, view);
  }
  return {};
}

void RealViews::keep(c10::intrusive_ptr<c10::TensorImpl> view, const c10::StorageImpl& storage, bool alone) {
  const bool plain = typeid(*view) == typeid(c10::TensorImpl) && !view->_is_zerotensor();
  const bool ours_alone =
      view.use_count() == 1 && view.weak_use_count() == 1 && view->pyobj_slot()->load_pyobj() == nullptr;
  if (!plain || !ours_alone || view->unsafe_storage().unsafeGetStorageImpl() != &storage) return;
  std::atomic<c10::TensorImpl*>* place = &views_.back();
  for (std::atomic<c10::TensorImpl*>& candidate : views_) {
    if (candidate.load(std::memory_order_relaxed) != nullptr) continue;
    // Without other threads a plain store suffices.
    if (alone) return candidate.store(view.release(), std::memory_order_release);
    place = &candidate;
    break;
  }
  put(*place, view.release());
}

// Puts a view into a slot, and releases the view that the slot held.
void RealViews::put(std::atomic<c10::TensorImpl*>& place, c10::TensorImpl* view) {
  c10::TensorImpl* before = place.exchange(view, std::memory_order_acq_rel);
  if (before != nullptr) c10::raw::intrusive_ptr::decref(before);
}

// No other thread uses the block any more, so plain loads and stores suffice.
void RealViews::clear() {
  for (std::atomic<c10::TensorImpl*>& place : views_) {
    c10::TensorImpl* const view = place.load(std::memory_order_acquire);
    if (view == nullptr) continue;
    place.store(nullptr, std::memory_order_relaxed);
    c10::raw::intrusive_ptr::decref(view);
  }
}

}  // namespace innkeeper::torch_layer
