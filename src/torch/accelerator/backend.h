// One kind of accelerator: what the managed device asks of it beyond c10's generic interfaces (c10_device.h).
//
// A new kind is a c10 device, one class that derives from Backend, one line in start/backends.cc, and a
// NodeMake with its grammar (config/machine.h). Each function that has a body here does what an accelerator
// without that feature needs.
//
// Thread safety: resolve, open, make_node, start_charging and stop_charging must not run beside anything that
// uses the accelerator's memory. All others may be called from any thread. Failures of the accelerator's
// library are thrown as c10::Error.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/Exception.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "config/machine.h"
#include "cost/kept_rates.h"
#include "device/device_api.h"
#include "device/slabs.h"
#include "residency/engine.h"
#include "torch/accelerator/philox_state.h"
#include "torch/process/kernel_clock.h"

namespace innkeeper::torch_layer {

// An accelerator as a node of the engine. Its budget is the caller's to set.
struct AcceleratorNode {
  NodeSetup setup;
  Bytes capacity;
  std::shared_ptr<KernelClock> kernel_clock = nullptr;  // null: reports its kernels' times
};

// The node that an accelerator's memory is charged to, and its budget.
struct ChargedNode {
  NodeId node = kNoNode;  // kNoNode: it is no node of this process
  Bytes budget{0};
};

// Evicts so many bytes from a node, also one that is within its budget.
using Relief = std::function<Status(NodeId, Bytes)>;

class Backend {
 public:
  virtual ~Backend() = default;

  // ---- what it is
  virtual NodeMake make() const = 0;
  virtual std::string kind() const = 0;  // as in its nodes' names: "cuda" of "cuda:0"
  virtual c10::DeviceType type() const = 0;
  virtual c10::DispatchKey key() const = 0;
  // Whose kernels compute there. A simulated accelerator runs the CPU's.
  virtual c10::DispatchKey kernel_key() const { return key(); }
  // Whether a program may use it beside the managed device, with streams and tensors of its own.
  virtual bool is_programs_too() const { return true; }
  // Whether its work goes on while no thread asks about it.
  virtual bool works_unseen() const { return true; }
  // Whether a copy from page-locked memory need not be waited for: PyTorch's allocator keeps that memory for
  // as long as the copy reads it.
  virtual bool keeps_pinned_memory() const { return false; }
  // Whether its matrix products take as long as its rates say, so that a probe measures them.
  virtual bool multiplies_at_its_rates() const { return true; }

  // ---- the machine
  // When the managed device is registered, before any machine.
  virtual void load() {}
  // Completes the nodes of this kind: which accelerators they are, and their budgets. Fails where one is not
  // there or smaller than its budget.
  virtual Status resolve(MachineSpec&) { return {}; }
  // Before the engine is made. Called for each machine, also for one without nodes of this kind.
  virtual void open(const MachineSpec&, Accountant&) {}
  virtual AcceleratorNode make_node(const NodeSpec& spec) = 0;
  // Once the engine is there: from now on all its memory is charged. Accelerator i is nodes[i]. With
  // `take_all` each takes its whole budget now; throws where it has less.
  virtual void start_charging(Accountant*, const Relief&, std::span<const ChargedNode>, bool /*take_all*/) {}
  // Its memory is charged no more. Does nothing where it was not.
  virtual void stop_charging() {}
  // A node's budget has changed.
  virtual void limit(c10::DeviceIndex, Bytes) {}
  // Locks host memory for copies at the link's full speed to these accelerators. None: it need not be locked.
  virtual std::optional<Slabs::Hooks> slab_hooks(std::span<const c10::DeviceIndex>) { return std::nullopt; }
  // Gives back what its libraries keep between operators.
  virtual void free_workspaces() {}

  // ---- random numbers
  // Whether its kernels draw from generators of its own. Otherwise they draw from a CPU's.
  virtual bool has_generators() const { return false; }
  // A generator for the calling thread's next operator: its numbers depend on the seed alone.
  virtual at::Generator generator(c10::DeviceIndex, uint64_t) { return {}; }
  // Gives the default generator another state; returns the state that it had.
  virtual PhiloxState exchange_default_generator(c10::DeviceIndex, PhiloxState state) { return state; }

  // ---- capture of graphs
  virtual bool is_any_captured() { return false; }
  virtual bool is_capturing(c10::DeviceIndex) { return false; }  // on the calling thread's current stream
  // The calling thread's calls end no other thread's capture.
  virtual void spare_captures(c10::DeviceIndex) {}

  // ---- its pace
  // What rates that were kept must agree with. None: its rates are not kept.
  virtual std::optional<cost::KeptRates> rates_of_today(c10::DeviceIndex) { return std::nullopt; }
  // Its last level of cache; 0 where there is none.
  virtual Bytes cache(c10::DeviceIndex) { return Bytes(0); }
  // Seconds of a clock of its own. None: the machine's clock is its clock.
  virtual std::optional<double> time(c10::DeviceIndex) { return std::nullopt; }
  // Its compute queue is busy for so long. Only a simulated accelerator can be.
  virtual void keep_busy(c10::DeviceIndex, double /*seconds*/) {
    TORCH_CHECK(false, "only simulated GPUs and the host are kept busy, not ", kind());
  }
};

// When the library is loaded. The backend is never taken away.
void add_backend(Backend& backend);
// All that were added.
std::span<Backend* const> backends();
// Whether any accelerator of any kind has a graph captured. Host memory must not be locked or unlocked then.
bool is_any_captured();
// That of this kind of device, or node; null if this build has none.
Backend* backend_of(c10::DeviceType type);
Backend* backend_of(NodeMake make);

}  // namespace innkeeper::torch_layer
