#include "torch/memory/real_memory.h"

#include <cstddef>

#include "base/thread_annotations.h"
#include "torch/memory/device_allocator.h"

namespace innkeeper::torch_layer {
namespace {

// Marks memory that a storage borrows from a block. Never called: there is no context.
void lent(void* /*context*/) {}

c10::DataPtr borrowed(void* data, c10::Device device) { return {data, nullptr, &lent, device}; }

// Makes the caller responsible for freeing a storage's memory; the storage borrows it from then on.
Memory take_memory(c10::StorageImpl& real) {
  const auto size = Bytes(static_cast<int64_t>(real.nbytes()));
  c10::DataPtr owned = real.set_data_ptr(borrowed(real.mutable_data(), real.device()));
  void* data = owned.get();
  const c10::DeleterFnPtr release = owned.get_deleter();
  void* context = owned.release_context();
  return {data, size, context, context == nullptr ? nullptr : release};
}

// The real storage of a storage that borrows part of a block. Its begin is a byte offset and it cannot be
// resized, so it has its own real storage over a part of the block's. It holds a reference to the block's
// real storage, so that an owner of it is seen (I12).
c10::intrusive_ptr<c10::StorageImpl> borrowing_storage(const c10::StorageImpl& shown, c10::StorageImpl* whole,
                                                       c10::Device device) {
  const auto make = [&](c10::DataPtr data) {
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), shown.nbytes(),
                                                 std::move(data), /*allocator=*/nullptr, /*resizable=*/false);
  };
  if (whole == nullptr) return make(borrowed(nullptr, device));
  auto* data = static_cast<std::byte*>(whole->_mutable_data_ptr_no_checks().get());
  c10::raw::intrusive_ptr::incref(whole);
  return make({data + borrowed_block(shown).offset, whole,
               [](void* kept) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(kept)); },
               device});
}

// Guards the ownership of memory in storages that code outside of this layer also holds.
Mutex& kept_mutex() {
  static auto& mutex = *new Mutex;
  return mutex;
}

}  // namespace

void hand_over(c10::StorageImpl& real, Memory memory) {
  if (!memory) return;
  const Memory::Raw raw = memory.take();
  const MutexLock lock(kept_mutex());
  real.set_data_ptr_noswap(c10::DataPtr(raw.data, raw.context, raw.release, real.device()));
}

void memory_changed(Block& block, NodeId node, void* data) {
  if (block.attachment == nullptr) return;
  c10::StorageImpl* real = attachment_of(block).real(node).storage.load(std::memory_order_acquire);
  if (real == nullptr) return;
  const c10::Device device = real->device();
  real->set_data_ptr_noswap(borrowed(data, device));
  if (data != nullptr) real->set_nbytes(static_cast<size_t>(block.size().count()));
}

// Two threads that release one block at the same time may each count the other's view as an outside holder.
// Then its pin stays until the next probe. The thread that probes last never misses a real escape.
bool is_held_elsewhere(Block& block, NodeId node) {
  const RealAtNode& at = attachment_of(block).real(node);
  c10::StorageImpl* real = at.storage.load(std::memory_order_acquire);
  return real != nullptr && c10::raw::intrusive_ptr::use_count(real) > 1 + at.views.count();
}

c10::StorageImpl& real_storage(Runtime& runtime, Block& block, NodeId node) {
  std::atomic<c10::StorageImpl*>& slot = attachment_of(block).real(node).storage;
  c10::StorageImpl* real = slot.load(std::memory_order_acquire);
  if (real != nullptr) [[likely]]
    return *real;
  const c10::Device device = runtime.backend(node).device;
  auto made = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(block.size().count()),
      borrowed(block.data(node), device), c10::GetAllocator(device.type()), /*resizable=*/true);
  if (slot.compare_exchange_strong(real, made.get(), std::memory_order_acq_rel)) real = made.release();
  return *real;
}

bool same_geometry(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  constexpr c10::DispatchKeySet kViewBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  const c10::IntArrayRef sizes = a.sizes(), strides = a.strides();
  if (!((a.key_set() ^ b.key_set()) & kViewBits).empty() || a.storage_offset() != b.storage_offset() ||
      sizes.size() != b.sizes().size())
    return false;
  const int64_t* const other_sizes = b.sizes().data();
  const int64_t* const other_strides = b.strides().data();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != other_sizes[i] || strides[i] != other_strides[i]) return false;
  }
  return true;
}

void copy_geometry(const c10::TensorImpl& source, c10::TensorImpl& target) {
  target.set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  target._set_conj(source.is_conj());
  target._set_neg(source.is_neg());
}

at::Tensor real_tensor(Runtime& runtime, const c10::TensorImpl& managed, const c10::StorageImpl& shown,
                       Block& block, NodeId node, bool inference) {
  c10::intrusive_ptr<c10::StorageImpl> storage;
  if (owns_block(shown)) [[likely]] {
    c10::StorageImpl& whole = real_storage(runtime, block, node);
    if (auto kept = attachment_of(block).real(node).views.take(managed, whole, inference)) {
      return at::Tensor(std::move(kept));
    }
    storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&whole);
  } else {
    c10::StorageImpl* whole = block.size() == Bytes(0) ? nullptr : &real_storage(runtime, block, node);
    storage = borrowing_storage(shown, whole, runtime.backend(node).device);
  }
  auto real = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(runtime.backend(node).key), managed.dtype());
  copy_geometry(managed, *real);
  if (managed.is_wrapped_number()) real->set_wrapped_number(true);
  return at::Tensor(std::move(real));
}

void keep_real_tensor(Block& block, NodeId node, at::Tensor real, bool alone) {
  RealAtNode& at = attachment_of(block).real(node);
  const c10::StorageImpl* storage = at.storage.load(std::memory_order_acquire);
  if (storage == nullptr || !real.has_storage()) return;
  at.views.keep(c10::intrusive_ptr<c10::TensorImpl>::reclaim(real.unsafeReleaseTensorImpl()), *storage,
                alone);
}

c10::intrusive_ptr<c10::StorageImpl> adopt_storage(Runtime& runtime, const c10::Storage& real, NodeId node,
                                                   c10::DeviceIndex index) {
  c10::StorageImpl& storage = *real.unsafeGetStorageImpl();
  const auto size = Bytes(static_cast<int64_t>(storage.nbytes()));
  auto handle = make_handle(size, index);
  if (size == Bytes(0)) return handle;
  Block& block = *block_of(*handle);
  Memory memory;
  if (real.use_count() == 1) [[likely]] {
    memory = take_memory(storage);
  } else {  // The kernel has kept it, and may return it on several threads.
    const MutexLock lock(kept_mutex());
    if (storage.data_ptr().get_deleter() == &lent) return {};
    memory = take_memory(storage);
  }
  c10::raw::intrusive_ptr::incref(&storage);
  attachment_of(block).real(node).storage.store(&storage, std::memory_order_release);
  runtime.engine().adopt(block, node, std::move(memory));
  return handle;
}

bool adopt_resize(Runtime& runtime, c10::StorageImpl& handle, Block& block, NodeId node, bool pinned) {
  c10::StorageImpl* real = attachment_of(block).real(node).storage.load(std::memory_order_acquire);
  if (real == nullptr) return false;
  const auto size = Bytes(static_cast<int64_t>(real->nbytes()));
  const bool moved = real->data() != (pinned ? block.data(node) : nullptr);
  if (!moved && size == block.size()) return false;
  if (!moved) {  // Shrunk in place: the memory stays the same.
    return false;
  }
  runtime.engine().replace(block, node, take_memory(*real), size);
  resize_handle(handle, size);
  return true;
}

}  // namespace innkeeper::torch_layer
