// Charges the allocations of CPU kernels, results and scratch memory, to the node for which a kernel runs.
//
// One allocator stands in front of PyTorch's CPU allocator for the life of the process. On a thread that is
// not armed it returns the original allocator's memory unchanged, at the cost of one read of a thread-local
// variable. While ArmedCpu is alive, the thread's allocations are charged to a node, so that the engine makes
// free space before the memory is taken. Any thread may free such memory at any time, which uncharges it.
//
// Raw allocation (raw_allocate, raw_deallocate; oneDNN's scratch memory) works too. It requires that the
// context of a piece of memory is the piece's address. So the charge of host memory stands right before the
// bytes. Pieces of simulated accelerators are in a table by address until they are freed or unlisted.
//
// Limit: worker threads of at::parallel_for (OpenMP) are not armed, because PyTorch carries no thread-local
// state into them. Kernels allocate their results before they fan out; memory that a worker allocates for
// itself is not charged.
//
// Thread safety: install_cpu_allocator must run before other threads allocate (when the library is loaded);
// the rest may be used from any thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include "device/device_api.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Installs it once for the process; later calls do nothing. It is never removed, because its memory may
// outlive every other object.
IK_EXPORT void install_cpu_allocator();

// Charges the calling thread's CPU allocations to a node while it lives. Objects may be nested; the innermost
// one counts.
class IK_EXPORT ArmedCpu {
 public:
  // Function that returns `size` bytes of an accelerator's memory, charged to it, as CPU memory.
  using Source = c10::DataPtr (*)(c10::DeviceIndex accelerator, size_t size);
  // Charges an accelerator whose kernels are the CPU's: `source` provides both the bytes and the charge.
  ArmedCpu(Source source, c10::DeviceIndex accelerator);
  // Charges `node`; the bytes are ordinary host memory. nullptr: charges nothing.
  ArmedCpu(Accountant* accountant, NodeId node);
  ~ArmedCpu();
  ArmedCpu(const ArmedCpu&) = delete;
  ArmedCpu& operator=(const ArmedCpu&) = delete;

 private:
  friend class DisarmedCpu;
  friend class CpuAllocator;

  const Source source_;  // Null: host memory.
  const c10::DeviceIndex accelerator_;
  Accountant* const accountant_;
  const NodeId node_;
  const ArmedCpu* const outer_;
};

// Exempts the calling thread's allocations from charging while it lives: the engine's own allocations while
// it makes free space for a kernel must not be charged to that kernel.
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

// A charged piece of CPU memory with the context and deleter of its own allocator, removed from the table.
// Other memory is returned unchanged. To free the result takes no lookup.
IK_EXPORT c10::DataPtr unlisted(c10::DataPtr memory);

}  // namespace innkeeper::torch_layer
