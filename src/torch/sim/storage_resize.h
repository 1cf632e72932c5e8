// Changing the size of an hpu storage.
#pragma once

#include <c10/core/StorageImpl.h>

namespace innkeeper::torch_layer::sim_backend {

// Gives the storage `size` bytes of new memory; copies the bytes that both sizes have on the current stream.
void resize_storage(c10::StorageImpl& storage, size_t size);

}  // namespace innkeeper::torch_layer::sim_backend
