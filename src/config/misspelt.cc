#include "config/misspelt.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace innkeeper {
namespace {

constexpr std::string_view kPrefix = "INNKEEPER_";
constexpr size_t kLongest = 100;
constexpr std::array<std::string_view, 19> kSettings = {
    "INNKEEPER_NODES",     "INNKEEPER_SIM",         "INNKEEPER_SOFT_PLACEMENT", "INNKEEPER_GROWTH",
    "INNKEEPER_PLANNING",  "INNKEEPER_RECOMPUTE",   "INNKEEPER_MIXED",          "INNKEEPER_STRESS",
    "INNKEEPER_LEASE_DIR", "INNKEEPER_QUEUE_DIR",   "INNKEEPER_NVML",           "INNKEEPER_AMDSMI",
    "INNKEEPER_LOG",       "INNKEEPER_SLURM_SHARD", "INNKEEPER_SEED",           "INNKEEPER_STEPS",
    "INNKEEPER_PROGRAM",   "INNKEEPER_FAKE_NVML",   "INNKEEPER_LIBRARIES",
};

// No settings, but ours: what a job and a lease's programs are told, and what our own tests are.
constexpr std::array<std::string_view, 12> kOurs = {
    "INNKEEPER_JOB_",  "INNKEEPER_ARRAY_INDEX", "INNKEEPER_LEASE", "INNKEEPER_LEASE_FD",
    "INNKEEPER_FIRST", "INNKEEPER_TEST_",       "INNKEEPER_FAKE_", "INNKEEPER_STORM_",
    "INNKEEPER_GPU_",  "INNKEEPER_KILL_",       "INNKEEPER_WAIT_", "INNKEEPER_PROGRAMS",
};

// A name of these that ends in an underscore stands for all that begin so.
bool is_ours(std::string_view said) {
  return std::any_of(kOurs.begin(), kOurs.end(), [said](std::string_view ours) {
    return ours.ends_with('_') ? said.starts_with(ours) : said == ours;
  });
}

// Levenshtein's distance.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// In a short name one letter is much.
size_t slips_in(std::string_view setting) { return setting.size() - kPrefix.size() < 5 ? 1 : 2; }

}  // namespace

std::vector<std::string> misspelt_settings(const char* const* environment) {
  std::vector<std::string> lines;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view said = entry.substr(0, entry.find('='));
    if (said.size() <= kPrefix.size() || said.size() > kLongest || is_ours(said)) continue;
    std::string_view nearest;
    size_t slips = SIZE_MAX;
    for (const std::string_view setting : kSettings) {
      const size_t now = distance(said, setting);
      if (now < slips) {
        slips = now;
        nearest = setting;
      }
    }
    if (slips == 0) continue;
    const bool near = slips <= slips_in(nearest);
    if (!near && !said.starts_with(kPrefix)) continue;
    lines.push_back(std::string(said) + " is set, and no setting" +
                    (near ? ": " + std::string(nearest) + " is one" : " (docs/settings.md has all)"));
  }
  return lines;
}

}  // namespace innkeeper
