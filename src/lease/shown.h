// GPUs that CUDA and HIP see in this process, and the chosen ones among them: maps a UUID to an ordinal.
//
// Until the process starts CUDA, environment variables decide. The choice is written there by UUID. CUDA then
// sees only the chosen GPUs, in the order of their choice, and no GPU of another vendor. Once CUDA is started
// it no longer reads the variables; the driver then tells the GPU of each ordinal. HIP cannot be queried so:
// choose AMD's GPUs before it is started.
//
// No function here starts CUDA or widens the set of GPUs that the process was given. A variable that the
// program sets itself meanwhile is its own, and stays.
//
// Thread safe, except that setenv() races with threads that read the environment at the same moment.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "telemetry/visible.h"

namespace innkeeper::lease {

// GPUs that are shown until this object ends. After the last one the variables are as they were
// before the first.
class Shown {
 public:
  // Returns false if the choice no longer counts, as in a child of fork() without its parent's
  // lease. Must not block.
  using Counts = std::function<bool()>;

  Shown() = default;
  Shown(const std::vector<std::string>& uuids, const telemetry::Snapshot& gpus, Counts counts);
  ~Shown() { end(); }
  Shown(Shown&&) noexcept = default;
  Shown& operator=(Shown&& other) noexcept;

  void end();

 private:
  struct Entry;
  friend struct Showing;
  std::shared_ptr<const Entry> entry_;
};

// Returns this process's variables as they were before any GPUs were shown.
telemetry::Variables variables_before();

// Returns the present ordinal of each GPU in this process: CUDA's, or HIP's for AMD's GPUs. Fails
// (unavailable) if CUDA was started in this process without one of them.
Result<std::vector<int>> ordinals_here(const std::vector<std::string>& uuids);

}  // namespace innkeeper::lease
