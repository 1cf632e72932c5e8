// A request for GPUs, in the options that pick, run, queue and Slurm share:
//
//   --gpus 2, -n 2        number of GPUs, all or nothing (1)
//   --mem 20G             minimum memory on each GPU; without it each GPU is taken whole
//   --share, --exclusive  share the GPU with others (default with --mem), or use it exclusively
//   --by MODE             free (most free memory), ratio (largest free part), power or utilization (least)
//   --wait, --wait=30s    wait in line, for ever or for a limited time (s, m, h, d)
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "lease/gpu.h"
#include "lease/record.h"

namespace innkeeper::lease {

enum class By : uint8_t { free, ratio, power, utilization };
const char* to_string(By by);
Result<By> parse_by(std::string_view mode);

struct Request {
  int count = 1;
  std::optional<Bytes> memory;    // Memory on each GPU; none: not specified.
  std::optional<bool> exclusive;  // True: exclusive; none: exclusive unless `memory` is set.
  By by = By::free;
  // Score used instead of `by`: higher is better. Called once per GPU, before any lock is taken.
  std::function<double(const Gpu&)> key;
  bool wait = false;
  std::optional<std::chrono::milliseconds> wait_limit;  // Longest wait; none: for ever.

  // The following fields are not options; the caller sets them.
  // UUIDs of the GPUs that the lease may use; none: every GPU.
  std::optional<std::vector<std::string>> allowed;
  std::string allowed_by;  // Variables that restrict the GPUs, for messages.
  std::string inside;      // Id of the lease to take a part of; empty: none.
  std::optional<std::chrono::milliseconds> expires_after;
  std::string job;
  // Limit of memory that processes without a lease (a desktop's, the driver's) may use on an exclusive GPU.
  Bytes foreign_allowed = MiB(512);

  bool whole() const { return exclusive.value_or(!memory.has_value()); }
};

// Takes the options above out of `arguments`, up to "--" or the first argument that is no option of any kind.
// The other arguments stay in order. An option's value follows it, as the next argument or after '='.
Result<Request> parse_request(std::vector<std::string>& arguments);

// Returns the options that parse to the request, for a job's description and for Slurm's.
std::vector<std::string> to_options(const Request& request);

// Returns text for messages, for example "2 GPUs with 20.0 GiB each" or "1 whole GPU".
std::string describe(const Request& request);

// Fails if the request makes no sense on any machine.
Status check(const Request& request);

// Longest time to a lease's expiry: a century, so that sums do not overflow.
inline constexpr std::chrono::hours kLongest{100 * 365 * 24};
Status check_expiry(std::chrono::milliseconds expires_after);

// Parses "30s", "5m", "2h" or "1d".
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace innkeeper::lease
