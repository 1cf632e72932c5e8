// One kind of accelerator: the functions that the managed device needs from it beyond c10's generic
// interfaces (c10_device.h).
//
// A new kind is a c10 device, one class that derives from Backend, one line in start/backends.cc and one in
// config/accelerator_kinds.h (docs/internals/backends.md). Each function with a body here has the behaviour
// of an accelerator without that feature.
//
// Thread safety: resolve, open, make_node, start_charging and stop_charging must not run concurrently with
// uses of the accelerator's memory. All others may be called from any thread. Failures of the accelerator's
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
#include <string_view>

#include "config/machine.h"
#include "cost/kept_rates.h"
#include "device/device_api.h"
#include "device/slabs.h"
#include "residency/engine.h"
#include "torch/accelerator/philox_state.h"
#include "torch/process/kernel_clock.h"

namespace innkeeper::torch_layer {

// An accelerator as a node of the engine. The caller sets its budget.
struct AcceleratorNode {
  NodeSetup setup;
  Bytes capacity;
  std::shared_ptr<KernelClock> kernel_clock = nullptr;  // Null: it reports its kernels' times.
};

// The node to which an accelerator's memory is charged, and its budget.
struct ChargedNode {
  NodeId node = kNoNode;  // kNoNode: no node of this process.
  Bytes budget{0};
};

// Evicts this number of bytes from a node, even if the node is within its budget.
using Relief = std::function<Status(NodeId, Bytes)>;

class Backend {
 public:
  virtual ~Backend() = default;

  // ---- identity
  virtual std::string_view kind() const = 0;  // Its name in kAcceleratorKinds.
  virtual c10::DeviceType type() const = 0;
  virtual c10::DispatchKey key() const = 0;
  // Key of the kernels that compute there. A simulated accelerator runs the CPU's kernels.
  virtual c10::DispatchKey kernel_key() const { return key(); }
  // Whether a program may use it beside the managed device, with its own streams and tensors.
  virtual bool is_programs_too() const { return true; }
  // Whether its work proceeds while no thread asks about it.
  virtual bool works_unseen() const { return true; }
  // Whether PyTorch's allocator keeps page-locked memory for as long as a copy reads it, so that the program
  // need not wait for such a copy.
  virtual bool keeps_pinned_memory() const { return false; }
  // Whether its matrix products take the time that its rates predict, so that a probe measures the rates.
  virtual bool multiplies_at_its_rates() const { return true; }

  // ---- the machine
  // Called when the managed device is registered, before any machine exists.
  virtual void load() {}
  // Completes the nodes of this kind: their accelerators and their budgets. Fails if an accelerator does not
  // exist or is smaller than its budget.
  virtual Status resolve(MachineSpec&) { return {}; }
  // Makes the accelerators of a new machine, before its engine. Called for each machine: one without nodes of
  // this kind ends those of the machine before. A kind with its own allocator keeps the accountant.
  virtual void open(const MachineSpec&, Accountant&) {}
  virtual AcceleratorNode make_node(const NodeSpec& spec) = 0;
  // Called when the engine exists. A kind with PyTorch's allocator, which allocates before that, charges all
  // memory from now on. Accelerator i is nodes[i]. With `take_all` each takes its whole budget now; throws if
  // it has less.
  virtual void start_charging(Accountant*, const Relief&, std::span<const ChargedNode>, bool /*take_all*/) {}
  // Ends the charging. Does nothing if there was none.
  virtual void stop_charging() {}
  // Called when a node's budget has changed.
  virtual void limit(c10::DeviceIndex, Bytes) {}
  // Functions that lock host memory for copies to these accelerators at the link's full speed. None: host
  // memory need not be locked.
  virtual std::optional<Slabs::Hooks> slab_hooks(std::span<const c10::DeviceIndex>) { return std::nullopt; }
  // Frees memory that its libraries keep between operators.
  virtual void free_workspaces() {}

  // ---- random numbers
  // Whether its kernels draw from generators of its own. Otherwise they draw from a CPU's generator.
  virtual bool has_generators() const { return false; }
  // A generator for the calling thread's next operator, whose numbers depend only on the seed.
  virtual at::Generator generator(c10::DeviceIndex, uint64_t) { return {}; }
  // Gives the default generator another state; returns its previous state.
  virtual PhiloxState exchange_default_generator(c10::DeviceIndex, PhiloxState state) { return state; }

  // ---- capture of graphs
  virtual bool is_any_captured() { return false; }
  // Whether the calling thread's current stream is being captured.
  virtual bool is_capturing(c10::DeviceIndex) { return false; }
  // Makes the calling thread's calls leave other threads' captures intact.
  virtual void spare_captures(c10::DeviceIndex) {}

  // ---- speed
  // Today's identity of the accelerator, with which stored rates must agree. None: its rates are not stored.
  virtual std::optional<cost::KeptRates> rates_of_today(c10::DeviceIndex) { return std::nullopt; }
  // Size of its last-level cache; 0 if there is none.
  virtual Bytes cache(c10::DeviceIndex) { return Bytes(0); }
  // While the result lives, the calling thread's kernels take the time that its rates predict, without
  // factors of single operators, so that a probe measures the rates. Null: they always do.
  virtual std::shared_ptr<void> at_its_rates() { return nullptr; }
  // Seconds of its own clock. None: it uses the machine's clock.
  virtual std::optional<double> time(c10::DeviceIndex) { return std::nullopt; }
  // Keeps its compute queue busy for `seconds`. Only a simulated accelerator supports this.
  virtual void keep_busy(c10::DeviceIndex, double /*seconds*/) {
    TORCH_CHECK(false, "only simulated GPUs and the host are kept busy, not ", kind());
  }
};

// Called when the library is loaded. The backend is never removed.
void add_backend(Backend& backend);
// All added backends.
std::span<Backend* const> backends();
// Whether a graph is being captured on any accelerator of any kind. Host memory must not be locked or
// unlocked then.
bool is_any_captured();
// The backend of this type of device; null if this build has none. Of backends that share a c10 device it is
// the first that was added.
Backend* backend_of(c10::DeviceType type);
// The backend of this kind; null if this build has none, or if `kind` is empty.
Backend* backend_of(std::string_view kind);

}  // namespace innkeeper::torch_layer
