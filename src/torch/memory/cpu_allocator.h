// Charges what CPU kernels allocate, results and scratch memory, to the node that a kernel runs for.
//
// One allocator is put in front of PyTorch's CPU allocator for the life of the process. A thread on which
// nothing is armed gets exactly what it got before, for the price of one look at a thread-local variable.
// While ArmedCpu is alive, the thread's allocations are charged to a node, so that room is made before the
// memory is taken, and uncharged when they are freed: by any thread, at any time.
//
// Raw allocation (raw_allocate, raw_deallocate; oneDNN's scratch memory) works too: it asks that a piece's
// context is its address. So what is charged to the host stands right before the bytes, and pieces of
// simulated accelerators in a table by address until they are freed or unlisted.
//
// Limit: worker threads of at::parallel_for (OpenMP) are not armed, because PyTorch carries no thread-local
// state into them. Kernels allocate their results before they fan out; what a worker allocates for itself is
// not charged.
//
// Thread safety: install_cpu_allocator must run before other threads allocate (when the library is loaded);
// the rest may be used from any thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include "device/device_api.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Once for the process; later calls do nothing. It is never taken away again: memory may outlive everything.
IK_EXPORT void install_cpu_allocator();

// Charges the calling thread's CPU allocations to a node as long as it lives. Nests: the innermost one
// counts.
class IK_EXPORT ArmedCpu {
 public:
  // Gives so many bytes of an accelerator's memory, charged, as memory of the CPU.
  using Source = c10::DataPtr (*)(c10::DeviceIndex accelerator, size_t size);
  // To an accelerator whose kernels are the CPU's: both the bytes and the charge are `source`'s.
  ArmedCpu(Source source, c10::DeviceIndex accelerator);
  // To `node`; the bytes are ordinary host memory. nullptr: nothing is charged.
  ArmedCpu(Accountant* accountant, NodeId node);
  ~ArmedCpu();
  ArmedCpu(const ArmedCpu&) = delete;
  ArmedCpu& operator=(const ArmedCpu&) = delete;

 private:
  friend class DisarmedCpu;
  friend class CpuAllocator;

  const Source source_;  // null: host memory
  const c10::DeviceIndex accelerator_;
  Accountant* const accountant_;
  const NodeId node_;
  const ArmedCpu* const outer_;
};

// Lets the calling thread allocate uncharged for a scope: making room while a kernel allocates must not be
// charged to that kernel.
class IK_EXPORT DisarmedCpu {
 public:
  DisarmedCpu();
  ~DisarmedCpu();
  DisarmedCpu(const DisarmedCpu&) = delete;
  DisarmedCpu& operator=(const DisarmedCpu&) = delete;

 private:
  const ArmedCpu* const outer_;
};

// Bytes of ordinary host memory that are charged to `node` and alive now, counted here (I4: a recount).
IK_EXPORT Bytes charged_host_memory(NodeId node);

// A charged piece of CPU memory as it was before it was put into the table, with the context and deleter of
// its allocator; anything else as it is. Freeing it looks nothing up.
IK_EXPORT c10::DataPtr unlisted(c10::DataPtr memory);

}  // namespace innkeeper::torch_layer
