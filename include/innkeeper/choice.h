// Choosing GPUs for this process: a lease on them, and what CUDA will see of it. docs/choosing.md says what
// it means; it is what Python's auto_choice does, by the same code. No torch here: torch/choice.h has the
// devices.
//
//   innkeeper::Choice gpu = innkeeper::auto_choice({.memory = int64_t{8} << 30});
//   module->to(innkeeper::device(gpu));
//
// Errors are thrown, with the numbers: LeaseBusy, it may work later; std::invalid_argument, it never will or
// makes no sense; std::runtime_error, no GPU can be seen or may be used, or the folder of leases cannot be
// used.
//
// Thread safety: the functions; one object is used by one thread at a time. Before CUDA is started choosing
// changes the environment, which no other thread may read at that moment (as for setenv).
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

// Not now: the message says what is left, who holds the rest, and who waits.
struct IK_EXPORT LeaseBusy : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ChoiceMode {
  free,         // most free memory
  ratio,        // largest free part of it
  power,        // least, of its limit
  utilization,  // least
};

// What is asked. GPUs without a holder come first, then those with the best links between them, then the
// best by `mode` or `key`.
struct ChoiceRequest {
  ChoiceMode mode = ChoiceMode::free;
  int n = 1;  // how many, all or none
  // Bytes of each. A CUDA context takes some hundred MiB of them.
  std::optional<int64_t> memory = std::nullopt;
  // Without others on them. By default a choice shares, and a lease does if `memory` is given.
  std::optional<bool> exclusive = std::nullopt;
  // "nvidia" or "amd"; empty: either. Several GPUs are always of one vendor.
  std::string vendor = {};
  // In line, for so long at most; kForEver.
  std::chrono::milliseconds wait{0};
  // Instead of `mode`: called once with each GPU; highest wins.
  std::function<double(const GPU&)> key = nullptr;
  // Asked ten times a second while waiting: true gives up, which is LeaseBusy.
  std::function<bool()> cancelled = nullptr;
  // After so long the lease ends by itself.
  std::optional<std::chrono::milliseconds> expires = std::nullopt;
  std::string job = {};  // a text that others see

  static constexpr std::chrono::milliseconds kForEver = std::chrono::milliseconds::max();
};

// A claim on bytes of each of some GPUs, or on all of them, that every process of the machine sees. It ends
// with the object, or when its last holder is gone, however that happens. After fork() the child does not
// have it, unless it was shared.
class IK_EXPORT Lease {
 public:
  ~Lease();
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;

  const std::string& id() const;           // what INNKEEPER_LEASE names, for a job that may lease parts of it
  std::vector<std::string> uuids() const;  // UUIDs of its GPUs or MIG instances, sorted.
  std::map<std::string, int64_t> claims() const;
  bool exclusive() const;
  bool held() const;    // This process holds the lease.
  bool intact() const;  // It is held, has not expired, and no administrator has removed it.

  void release();  // again: does nothing
  // Changes how many bytes of each of its GPUs it has; if it cannot, it stays as it was.
  void resize(int64_t memory);
  void renew(std::chrono::milliseconds expires);

  // Children of fork() keep it from now on.
  void share_with_children();
  // And programs that this process executes: the descriptor, for adopt_lease() there.
  int share_through_exec();
  // Lets go of it without ending it for those who share it.
  void leave();

 private:
  friend struct ChoiceParts;
  struct Parts;
  explicit Lease(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// GPUs that were chosen, and the lease on them. It ends with the object.
class IK_EXPORT Choice {
 public:
  ~Choice();
  Choice(Choice&&) noexcept;
  Choice& operator=(Choice&&) noexcept;

  const std::vector<std::string>& uuids() const;
  // CUDA's numbers of them in this process, as things are now. Throws std::runtime_error if CUDA was started
  // in this process without one of them.
  std::vector<int> ordinals() const;
  // Bytes that were asked of each; none if no number was given.
  std::optional<int64_t> memory() const;
  // What part of each GPU's memory a framework's allocator may have: `memory` less what the CUDA context
  // takes; 1 if no number was given. For c10::cuda::CUDACachingAllocator::setMemoryFraction.
  std::vector<double> memory_fractions() const;

  Lease& lease();
  const Lease& lease() const;

  // Gives the GPUs back, and the environment as it was. Again: does nothing.
  void release();

 private:
  friend struct ChoiceParts;
  struct Parts;
  explicit Choice(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Chooses, and leases. Before CUDA is started in this process CUDA_VISIBLE_DEVICES is set to what was chosen,
// until the choice ends; after that go by ordinals(). Without `memory` the lease is a mark: others only see
// that the GPU is held, and take another while there is one.
[[nodiscard]] IK_EXPORT Choice auto_choice(const ChoiceRequest& request = {});

// The lease alone: no variable is touched. Without `memory` GPUs are taken whole.
[[nodiscard]] IK_EXPORT Lease take_lease(const ChoiceRequest& request = {});

// The lease that this process was started with (INNKEEPER_LEASE_FD), or that of another inherited descriptor,
// which is the Lease's from then on. A failure leaves it as it was.
[[nodiscard]] IK_EXPORT Lease adopt_lease(std::optional<int> descriptor = std::nullopt);

}  // namespace innkeeper
