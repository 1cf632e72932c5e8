// Chooses GPUs for this process: takes a lease on them, and restricts CUDA to them. docs/choosing.md
// explains the meaning; Python's auto_choice runs the same code. This header does not need torch:
// torch/choice.h has the devices.
//
//   innkeeper::Choice gpu = innkeeper::auto_choice({.memory = int64_t{8} << 30});
//   module->to(innkeeper::device(gpu));
//
// Errors are thrown, with the numbers. LeaseBusy: it may work later. std::invalid_argument: it never
// will, or makes no sense. std::runtime_error: no GPU can be seen or may be used, or the directory of
// leases cannot be used.
//
// Thread safety: the functions; one thread uses an object at a time. Before CUDA is started, choosing changes
// the environment, which no other thread may read at that moment (as for setenv).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "innkeeper/export.h"
#include "innkeeper/gpus.h"

namespace innkeeper {

// The request fails now but may succeed later: the message names the free bytes, the holders, and the
// waiting requests.
struct IK_EXPORT LeaseBusy : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ChoiceMode {
  free,         // Most free memory.
  ratio,        // Largest free share of its memory.
  power,        // Least power draw as a share of the limit.
  utilization,  // Least utilization.
};

// A request for GPUs. GPUs without a holder come first, then those with the best links between them, then the
// best by `mode` or `key`.
struct ChoiceRequest {
  ChoiceMode mode = ChoiceMode::free;
  int n = 1;  // Number of GPUs, all or none.
  // Bytes on each GPU; none: not specified. A CUDA context takes some hundred MiB of them.
  std::optional<int64_t> memory = std::nullopt;
  // True: no other lease shares the GPUs. None: a choice shares, and a lease shares if `memory` is given.
  std::optional<bool> exclusive = std::nullopt;
  // "nvidia" or "amd"; empty: either. Several GPUs are always of one vendor.
  std::string vendor = {};
  // Longest wait in line; 0: do not wait; kForEver: no limit.
  std::chrono::milliseconds wait{0};
  // Score used instead of `mode`: called once with each GPU; the highest wins.
  std::function<double(const GPU&)> key = nullptr;
  // Called ten times a second while waiting; true gives up, which throws LeaseBusy.
  std::function<bool()> cancelled = nullptr;
  // Time after which the lease ends by itself; none: never.
  std::optional<std::chrono::milliseconds> expires = std::nullopt;
  std::string job = {};  // Description that other users see.

  static constexpr std::chrono::milliseconds kForEver = std::chrono::milliseconds::max();
};

// A claim on bytes of some GPUs, or on whole GPUs, that every process of the machine sees. It ends with the
// object, or when its last holder is gone, whatever the cause. After fork() the child does not have it,
// unless it was shared.
class IK_EXPORT Lease {
 public:
  ~Lease();
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;

  const std::string& id() const;  // Id that INNKEEPER_LEASE names for a job, which may lease parts of it.
  std::vector<std::string> uuids() const;  // UUIDs of its GPUs or MIG instances, sorted.
  std::map<std::string, int64_t> claims() const;
  bool exclusive() const;
  bool held() const;    // This process holds the lease.
  bool intact() const;  // It is held, has not expired, and no administrator has removed it.

  void release();  // Releases the lease. A second call has no effect.
  // Changes its bytes on each of its GPUs; on failure it stays as it was.
  void resize(int64_t memory);
  void renew(std::chrono::milliseconds expires);

  // Lets later children of fork() keep the lease.
  void share_with_children();
  // Also lets programs that this process executes keep it. Returns the descriptor, for adopt_lease() there.
  int share_through_exec();
  // Gives up this process's part of the lease without ending it for the processes that share it.
  void leave();

 private:
  friend struct ChoiceParts;
  struct Parts;
  explicit Lease(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// The chosen GPUs, and the lease on them, which ends with the object.
class IK_EXPORT Choice {
 public:
  ~Choice();
  Choice(Choice&&) noexcept;
  Choice& operator=(Choice&&) noexcept;

  const std::vector<std::string>& uuids() const;
  // Returns CUDA's present numbers of the GPUs in this process. Throws std::runtime_error if CUDA was started
  // in this process without one of them.
  std::vector<int> ordinals() const;
  // Requested bytes on each GPU; none: no number was given.
  std::optional<int64_t> memory() const;
  // Returns the share of each GPU's memory that a framework's allocator may use: `memory` minus the CUDA
  // context's; 1 if no number was given. For c10::cuda::CUDACachingAllocator::setMemoryFraction.
  std::vector<double> memory_fractions() const;

  Lease& lease();
  const Lease& lease() const;

  // Releases the GPUs and restores the environment. A second call has no effect.
  void release();

 private:
  friend struct ChoiceParts;
  struct Parts;
  explicit Choice(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Chooses GPUs and leases them. Before CUDA is started in this process, CUDA_VISIBLE_DEVICES names the chosen
// GPUs until the choice ends; after that use ordinals(). Without `memory` the lease is only a mark: other
// programs see that the GPU is held, and prefer another GPU.
[[nodiscard]] IK_EXPORT Choice auto_choice(const ChoiceRequest& request = {});

// Takes only a lease and changes no variable. Without `memory` it takes whole GPUs.
[[nodiscard]] IK_EXPORT Lease take_lease(const ChoiceRequest& request = {});

// Adopts the lease that this process was started with (INNKEEPER_LEASE_FD), or that of another inherited
// descriptor, which the Lease owns from then on. A failure leaves the descriptor as it was.
[[nodiscard]] IK_EXPORT Lease adopt_lease(std::optional<int> descriptor = std::nullopt);

}  // namespace innkeeper
