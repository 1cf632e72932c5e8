#include "config/misspelt.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/edit_distance.h"

namespace innkeeper {
namespace {

constexpr std::string_view kPrefix = "INNKEEPER_";
constexpr size_t kLongest = 100;
constexpr std::array<std::string_view, 20> kSettings = {
    "INNKEEPER_NODES",     "INNKEEPER_SIM",         "INNKEEPER_SOFT_PLACEMENT", "INNKEEPER_GROWTH",
    "INNKEEPER_PLANNING",  "INNKEEPER_RECOMPUTE",   "INNKEEPER_MIXED",          "INNKEEPER_STRESS",
    "INNKEEPER_LEASE_DIR", "INNKEEPER_QUEUE_DIR",   "INNKEEPER_NVML",           "INNKEEPER_AMDSMI",
    "INNKEEPER_LOG",       "INNKEEPER_SLURM_SHARD", "INNKEEPER_SEED",           "INNKEEPER_STEPS",
    "INNKEEPER_PROGRAM",   "INNKEEPER_FAKE_NVML",   "INNKEEPER_LIBRARIES",      "INNKEEPER_PROBE",
};

// Variables of ours that are no settings. They are passed to jobs, to a lease's program and to a run's
// processes, or belong to our tests.
constexpr auto kOurs = std::to_array<std::string_view>({
    "INNKEEPER_JOB_ID",          "INNKEEPER_JOB_ATTEMPT",  "INNKEEPER_JOB_NAME",
    "INNKEEPER_JOB_STATE",       "INNKEEPER_JOB_CODE",     "INNKEEPER_JOB_OUTPUT",
    "INNKEEPER_ARRAY_INDEX",     "INNKEEPER_LEASE",        "INNKEEPER_LEASE_FD",
    "INNKEEPER_LEASE_GPUS",      "INNKEEPER_FIRST",        "INNKEEPER_FAKE_AMDSMI",
    "INNKEEPER_CLOCK_ERROR",     "INNKEEPER_FAKE_CUDA",    "INNKEEPER_FAKE_CUDA_ERROR",
    "INNKEEPER_FAKE_CUDA_PEERS", "INNKEEPER_FAKE_LIBRARY", "INNKEEPER_GPU_TESTS",
    "INNKEEPER_KILL_FILE",       "INNKEEPER_KILL_STEP",    "INNKEEPER_PROGRAMS",
    "INNKEEPER_ROUNDS",          "INNKEEPER_STORM_GRANTS", "INNKEEPER_STORM_JOBS",
    "INNKEEPER_STORM_KILLS",     "INNKEEPER_TEST_ON",      "INNKEEPER_TEST_ON_DISK",
    "INNKEEPER_TEST_RUN",        "INNKEEPER_TEST_STATS",   "INNKEEPER_WAIT_FILE",
    "INNKEEPER_WAIT_STEP",
});

std::string in_capitals(std::string_view text) {
  std::string capitals(text);
  for (char& letter : capitals) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return capitals;
}

// In a short name one letter is a large part.
size_t slips_in(std::string_view setting) { return setting.size() - kPrefix.size() < 5 ? 1 : 2; }

}  // namespace

std::vector<std::string> misspelt_settings(const char* const* environment) {
  std::vector<std::string> lines;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view said = entry.substr(0, entry.find('='));
    if (said.size() <= kPrefix.size() || said.size() > kLongest) continue;
    if (std::find(kOurs.begin(), kOurs.end(), said) != kOurs.end()) continue;
    std::string_view nearest;
    size_t slips = SIZE_MAX;
    const std::string capitals = in_capitals(said);
    for (const std::string_view setting : kSettings) {
      const size_t now = edit_distance(capitals, setting);
      if (now < slips) {
        slips = now;
        nearest = setting;
      }
    }
    if (said == nearest) continue;
    const bool near = slips <= slips_in(nearest);
    if (!near && !said.starts_with(kPrefix)) continue;
    lines.push_back(std::string(said) + " is set, and no setting" +
                    (near ? ": " + std::string(nearest) + " is one" : " (docs/settings.md has all)"));
  }
  return lines;
}

}  // namespace innkeeper
