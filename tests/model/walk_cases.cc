#include "model/walk.h"

namespace innkeeper::test {
namespace {

const WalkCase kWalkCases[] = {
    {"OneAccelerator", {.machine = {.budget = KiB(36)}}},
    {"OneAcceleratorWithDisk",
     {.machine = {.budget = KiB(36), .host_budget = KiB(48), .disk_budget = MiB(4)}}},
    {"TwoAccelerators", {.machine = {.accelerators = 2, .budget = KiB(36)}}},
    {"ThreeWithoutPeersAndTheHostComputes",
     {.machine = {.accelerators = 3, .budget = KiB(36), .peers = false, .host_computes = true}}},
    {"TwoWithDiskAndTheHostComputes",
     {.machine = {.accelerators = 2,
                  .budget = KiB(36),
                  .host_budget = KiB(48),
                  .disk_budget = MiB(4),
                  .peers = false,
                  .host_computes = true}}},
    {"HostAndDiskAlone", {.machine = {.accelerators = 0, .host_budget = KiB(48), .disk_budget = MiB(4)}}},
    {"TooSmall",
     {.machine = {.accelerators = 2, .budget = KiB(20), .host_budget = KiB(24)}, .may_run_out = true}},
    {"ThreeThreadsOneAccelerator", {.machine = {.budget = KiB(36)}, .max_size = 2500, .lanes = 3}},
    {"ThreeThreadsTwoAccelerators",
     {.machine = {.accelerators = 2, .budget = KiB(36)}, .max_size = 2500, .lanes = 3}},
    {"NarrowLinks",
     {.machine = {.accelerators = 2,
                  .budget = KiB(36),
                  .host_budget = KiB(48),
                  .disk_budget = MiB(4),
                  .links = {.part = KiB(1), .few = 1, .enough = Bytes(0)}}}},
    {"ThreeThreadsNarrowLinks",
     {.machine = {.accelerators = 2,
                  .budget = KiB(36),
                  .host_budget = KiB(64),
                  .disk_budget = MiB(4),
                  .peers = false,
                  .links = {.part = KiB(1), .few = 1, .enough = Bytes(0)}},
      .max_size = 2500,
      .lanes = 3}},
    {"TwoThreadsWithDiskAndTheHostComputes",
     {.machine = {.accelerators = 2,
                  .budget = KiB(36),
                  .host_budget = KiB(64),
                  .disk_budget = MiB(4),
                  .peers = false,
                  .host_computes = true},
      .max_size = 2500,
      .lanes = 2}},
};

}  // namespace

std::span<const WalkCase> walk_cases() { return kWalkCases; }

}  // namespace innkeeper::test
