#include "torch/handle.h"

#include <utility>

#include "torch/address_space.h"
#include "torch/device_allocator.h"
#include "torch/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

// Makes the storage own the memory that it has borrowed from its block's replica.
void hand_over(c10::StorageImpl& real, Memory memory) {
  if (!memory) return;
  const Memory::Raw raw = memory.take();
  real.set_data_ptr_noswap(c10::DataPtr(raw.data, raw.context, raw.release, real.device()));
}

// Lets go of a block's real storages. One that somebody else still holds (I12) becomes the owner of its
// memory; until then it stays where the engine's probe sees it, so that its pin is not given back.
void release_storages(Engine& engine, Block& block, Attachment& attachment) {
  for (size_t index = 0; index < engine.node_count(); ++index) {
    std::atomic<c10::StorageImpl*>& slot = attachment.real[index].storage;
    c10::StorageImpl* real = slot.load(std::memory_order_acquire);
    if (real == nullptr) continue;
    attachment.real[index].views.clear();
    if (c10::raw::intrusive_ptr::use_count(real) > 1) {
      hand_over(*real, engine.surrender(block, NodeId{static_cast<uint8_t>(index)}));
    }
    slot.store(nullptr, std::memory_order_release);
    c10::raw::intrusive_ptr::decref(real);
  }
}

// The deleter of a handle's DataPtr. Runs on any thread, with or without the GIL, and after main has ended:
// the runtime and the address space are never destroyed, and nothing here calls Python.
void delete_handle(void* context) {
  Runtime* const machine = runtime_if_started();
  if (machine == nullptr) return;  // in a child of fork(): nothing of it is ours (fork.h)
  auto* block = static_cast<Block*>(context);
  std::unique_ptr<Attachment> attachment(&attachment_of(*block));
  Engine& engine = machine->engine();
  release_storages(engine, *block, *attachment);
  engine.destroy(block);
  address_space().give_back(attachment->address, attachment->reserved);
}

}  // namespace

c10::DataPtr make_handle_pointer(Bytes size) {
  Engine& engine = runtime().engine();
  auto attachment = std::make_unique<Attachment>(engine.node_count());
  attachment->address = address_space().take(static_cast<size_t>(size.count()));
  attachment->reserved = static_cast<size_t>(size.count());
  void* address = attachment->address;
  Block* block = engine.create(size);
  block->attachment = attachment.release();
  return {address, block, &delete_handle, managed_device()};
}

c10::intrusive_ptr<c10::StorageImpl> make_handle(Bytes size) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               static_cast<size_t>(size.count()), make_handle_pointer(size),
                                               handle_allocator(), /*resizable=*/true);
}

Block* block_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& pointer = storage.data_ptr();
  TORCH_CHECK(pointer.get_deleter() == &delete_handle, "a storage on ", storage.device(),
              " that is not a managed tensor's (was its data pointer replaced?)");
  return static_cast<Block*>(pointer.get_context());
}

void resize_handle(c10::StorageImpl& storage, Bytes size) {
  Attachment& attachment = attachment_of(*block_of(storage));
  const auto wanted = static_cast<size_t>(size.count());
  if (wanted == 0 || AddressSpace::class_size(wanted) > AddressSpace::class_size(attachment.reserved)) {
    void* address = address_space().take(wanted);
    address_space().give_back(std::exchange(attachment.address, address), attachment.reserved);
    attachment.reserved = wanted;
    c10::DataPtr& pointer = storage._mutable_data_ptr_no_checks();
    pointer = c10::DataPtr(address, pointer.release_context(), &delete_handle, managed_device());
  }
  storage.set_nbytes(wanted);
}

}  // namespace innkeeper::torch_layer
