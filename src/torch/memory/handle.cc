#include "torch/memory/handle.h"

#include <utility>

#include "base/check.h"
#include "base/thread_annotations.h"
#include "torch/memory/device_allocator.h"
#include "torch/memory/device_index.h"
#include "torch/memory/index_memory.h"
#include "torch/memory/real_memory.h"
#include "torch/memory/spare_attachments.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

// Releases a block's real storages. If code outside still holds one (I12), it becomes the owner of its
// memory. Until then it stays in its slot, where the engine's probe sees it and keeps its pin.
void release_storages(Engine& engine, Block& block, Attachment& attachment) {
  for (size_t index = 0; index < engine.node_count(); ++index) {
    const NodeId node{static_cast<uint8_t>(index)};
    std::atomic<c10::StorageImpl*>& slot = attachment.real(node).storage;
    c10::StorageImpl* real = slot.load(std::memory_order_acquire);
    if (real == nullptr) continue;
    attachment.real(node).views.clear();
    if (c10::raw::intrusive_ptr::use_count(real) > 1) {
      hand_over(*real, engine.detach(block, node));
    }
    slot.store(nullptr, std::memory_order_release);
    c10::raw::intrusive_ptr::decref(real);
  }
}

// Makes the range the block's addresses, and makes find() lead from them to the block.
void* assign(Block& block, AddressSpace::Range* addresses) {
  attachment_of(block).addresses = addresses;
  if (addresses == nullptr) return nullptr;
  addresses->owner.store(&block, std::memory_order_release);
  return addresses->address();
}

Mutex empty_mutex;
c10::DataPtr& empty_handle() IK_REQUIRES(empty_mutex) {
  static auto& handle = *new c10::DataPtr;
  return handle;
}

Block* empty_block() {
  const auto block = [] { return static_cast<Block*>(empty_handle().get_context()); };
  MutexLock lock(empty_mutex);
  if (block() != nullptr) return block();
  lock.unlock();
  c10::DataPtr made = make_handle_pointer(Bytes(0), 0);  // May start the runtime.
  lock.lock();
  if (block() == nullptr) std::swap(empty_handle(), made);
  Block* result = block();
  lock.unlock();  // A superfluous handle must be freed without the lock.
  return result;
}

void count_block(Attachment& attachment, Bytes size) {
  if (!has_device_per_node()) [[likely]]
    return;
  if (size != attachment.counted) count_bytes(attachment.device_index, size - attachment.counted);
  attachment.counted = size;
}

}  // namespace

// Runs on any thread, with or without the GIL, and also after main() has ended. The runtime and the address
// space are never destroyed, and nothing here calls Python.
void delete_handle(void* context) {
  Runtime* const machine = runtime_if_started();
  if (machine == nullptr) return;  // In a child of fork() the memory is the parent's (fork.h).
  auto* block = static_cast<Block*>(context);
  Attachment::Owner attachment(&attachment_of(*block));
  if (attachment->addresses != nullptr)  // First of all, because the owner points to the block.
    attachment->addresses->owner.store(nullptr, std::memory_order_relaxed);
  Engine& engine = machine->engine();
  release_storages(engine, *block, *attachment);
  count_block(*attachment, Bytes(0));
  Block::Space space = engine.destroy(block);
  attachment->origin = nullptr;
#if !C10_ASAN_ENABLED  // The address sanitizer must see uses after the free.
  attachment->space = std::move(space);
#endif
  keep_attachment(std::move(attachment), engine.node_count());
}

c10::DataPtr make_handle_pointer(Bytes size, c10::DeviceIndex index) {
  Engine& engine = runtime().engine();
  Attachment::Owner attachment = take_attachment(engine.node_count(), static_cast<size_t>(size.count()));
  Block* block = engine.create(size, std::move(attachment->space));
  attachment->device_index = index;
  count_block(*attachment, size);
  AddressSpace::Range* const addresses = attachment->addresses;
  block->attachment = attachment.release();
  return {assign(*block, addresses), block, &delete_handle, device_at(index)};
}

c10::intrusive_ptr<c10::StorageImpl> make_handle(Bytes size, c10::DeviceIndex index) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               static_cast<size_t>(size.count()),
                                               make_handle_pointer(size, index), handle_allocator(),
                                               /*resizable=*/true);
}

Borrowed borrowed_block(const c10::StorageImpl& storage) {
  refuse_in_forked_child();
  const c10::Device device = storage.device();
  TORCH_CHECK(device.type() == kManagedType, "a storage on ", device, " holds no managed memory");
  const size_t size = storage.nbytes();
  if (size == 0) return {empty_block(), 0};
  const void* address = storage.data();
  TORCH_CHECK(address != nullptr, "zeros of ", size,
              " bytes without memory (torch._efficientzerotensor) are ",
              "nowhere; clone() makes them an ordinary tensor");
  const AddressSpace::Range* range = address_space().find(address);
  TORCH_CHECK(range != nullptr, "a storage on ", device, " of ", size, " bytes at address ", address,
              ", where no managed tensor ever was (was it made of another device's memory?)");
  auto* block = static_cast<Block*>(range->owner.load(std::memory_order_acquire));
  TORCH_CHECK(block != nullptr, "a storage on ", device, " of ", size,
              " bytes borrows the memory at address ", address,
              " of a managed tensor that is gone; it must be kept alive meanwhile");
  const size_t offset = reinterpret_cast<uintptr_t>(address) - range->begin;
  const auto whole = static_cast<size_t>(block->size().count());
  TORCH_CHECK(offset + size <= whole, "a storage on ", device, " borrows ", size, " bytes from byte ", offset,
              " on of a managed tensor that has ", whole);
  return {block, offset};
}

void forget_empty_block() {
  c10::DataPtr last;
  MutexLock lock(empty_mutex);
  std::swap(empty_handle(), last);
}

void resize_handle(c10::StorageImpl& storage, Bytes size) {
  IK_CHECK(owns_block(storage), "a borrowing storage cannot be resized");
  Block* block = block_of(storage);
  const auto wanted = static_cast<size_t>(size.count());
  AddressSpace::Range* before = attachment_of(*block).addresses;
  if (wanted == 0 || AddressSpace::class_size(wanted) > (before == nullptr ? 0 : before->size)) {
    void* address = assign(*block, address_space().take(wanted));
    address_space().give_back(before);
    c10::DataPtr& pointer = storage._mutable_data_ptr_no_checks();
    pointer = c10::DataPtr(address, pointer.release_context(), &delete_handle, storage.device());
  }
  storage.set_nbytes(wanted);
  count_block(attachment_of(*block), size);
}

}  // namespace innkeeper::torch_layer
