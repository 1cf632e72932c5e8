// What CUDA and HIP see of the machine in this process, and what of it was chosen: the way from a UUID to an
// ordinal.
//
// Until something has started CUDA its variables decide. What was chosen is then written there, by UUID, so
// that CUDA will see the chosen cards alone, in the order in which they were chosen, and no card of another
// vendor. Once CUDA is started the variables are read no more: then the driver is asked which card each
// ordinal is. HIP cannot be asked so: AMD's cards are to be chosen before it is started.
//
// Nothing here starts CUDA, and nothing widens what the process was given. A variable that the program sets
// itself meanwhile is its own, and stays.
//
// Thread safe, but for what setenv() is: a thread that reads the environment at the same moment.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "telemetry/visible.h"

namespace innkeeper::lease {

// Cards that are shown until this ends. After the last the variables are as they were before the first.
class Shown {
 public:
  // False: it counts no more, as in a child of fork() that does not have its parent's lease. Must not block.
  using Counts = std::function<bool()>;

  Shown() = default;
  Shown(const std::vector<std::string>& uuids, const telemetry::Snapshot& cards, Counts counts);
  ~Shown() { end(); }
  Shown(Shown&&) noexcept = default;
  Shown& operator=(Shown&& other) noexcept;

  void end();

 private:
  struct Entry;
  friend struct Showing;
  std::shared_ptr<const Entry> entry_;
};

// The variables of this process as they were before anything was shown.
telemetry::Variables variables_before();

// CUDA's ordinal (HIP's, of AMD's cards) of each in this process, as things are now. Fails (unavailable) if
// CUDA was started in this process without one of them.
Result<std::vector<int>> ordinals_here(const std::vector<std::string>& uuids);

}  // namespace innkeeper::lease
