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
    c10::TensorImpl* view = place.exchange(nullptr, std::memory_order_acq_rel);  // ours alone from here on
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
    if (alone) return candidate.store(view.release(), std::memory_order_release);  // no exchange is needed
    place = &candidate;
    break;
  }
  put(*place, view.release());
}

// What stood in the place is let go.
void RealViews::put(std::atomic<c10::TensorImpl*>& place, c10::TensorImpl* view) {
  c10::TensorImpl* before = place.exchange(view, std::memory_order_acq_rel);
  if (before != nullptr) c10::raw::intrusive_ptr::decref(before);
}

// No other thread is here: no exchange is needed.
void RealViews::clear() {
  for (std::atomic<c10::TensorImpl*>& place : views_) {
    c10::TensorImpl* const view = place.load(std::memory_order_acquire);
    if (view == nullptr) continue;
    place.store(nullptr, std::memory_order_relaxed);
    c10::raw::intrusive_ptr::decref(view);
  }
}

}  // namespace innkeeper::torch_layer
