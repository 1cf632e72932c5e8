// What somebody asks for, in the words that pick, run, queue and Slurm share:
//
//   --gpus 2, -n 2        how many cards, all or nothing (1)
//   --mem 20G             at least that much of each; without it a card is taken whole
//   --share, --exclusive  with others (the default with --mem), or the card for itself alone
//   --by MODE             free (most free memory), ratio (largest free part), power or utilization (least)
//   --wait, --wait=30s    wait in line, for ever or for so long (s, m, h, d)
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "lease/card.h"
#include "lease/record.h"

namespace innkeeper::lease {

enum class By : uint8_t { free, ratio, power, utilization };
const char* to_string(By by);
Result<By> parse_by(std::string_view mode);

struct Request {
  int count = 1;
  std::optional<Bytes> memory;    // of each card
  std::optional<bool> exclusive;  // none: exclusive unless there is `memory`
  By by = By::free;
  // Instead of `by`: higher is better. Called before any lock is taken, once a card.
  std::function<double(const Card&)> key;
  bool wait = false;
  std::optional<std::chrono::milliseconds> wait_limit;  // none: for ever

  // Not part of the language: set by the caller.
  std::optional<std::vector<std::string>> allowed;  // UUIDs; never anything outside. none: every card
  std::string allowed_by;                           // the variables that say so, for messages
  std::string inside;                               // the id of a lease to take a part of
  std::optional<std::chrono::milliseconds> expires_after;
  std::string job;
  // An exclusive card may be in use by processes without a lease up to here (a desktop's, the driver's).
  Bytes foreign_allowed = MiB(512);

  bool whole() const { return exclusive.value_or(!memory.has_value()); }
};

// Takes the options above out of `arguments`, up to "--" or the first argument that is no option of any kind,
// and leaves the rest in order. An option's value follows it or stands behind '='.
Result<Request> parse_request(std::vector<std::string>& arguments);

// The options that parse to it: for a job's description, and for Slurm's.
std::vector<std::string> to_options(const Request& request);

// "2 GPUs with 20.0 GiB each", "1 whole GPU": for messages.
std::string describe(const Request& request);

// Fails if it makes no sense, whatever the machine.
Status check(const Request& request);

// A lease ends after some time, at most a century, so that sums fit.
inline constexpr std::chrono::hours kLongest{100 * 365 * 24};
Status check_expiry(std::chrono::milliseconds expires_after);

// "30", "30s", "5m", "2h", "1d".
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace innkeeper::lease
