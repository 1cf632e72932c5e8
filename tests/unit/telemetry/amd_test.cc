// AMD's GPUs through the real loader: each test has a script of its own for the fake AMD SMI library.
#include <gtest/gtest.h>

#include <string>

#include "support/child.h"
#include "support/environment.h"
#include "support/sane_snapshot.h"
#include "support/telemetry_checks.h"
#include "telemetry/amd_gpus.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::telemetry {
namespace {

const char* const kTwoAmdGpus =
    "gpu aaaaaaaaaaaaaaaa\n  bus 0000:01:00.0\n  memory 8G 0 1G\n"
    "gpu bbbbbbbbbbbbbbbb\n  bus 0000:02:00.0\n  memory 8G 0 2G\n";

TEST(Amd, ReadsAllOfAGpu) {
  const FakeAmdGpus gpus(
      "library 26 1 3 0\ndriver 6.14.14\n"
      "gpu 7fd6f0a4cd0d2b6c\n  bus 0001:C1:1f.7\n  name AMD Instinct MI300X\n  memory 192G 0 3G\n"
      "  utilization 35 10\n  power 120 750\n  temperature 45\n  clocks 2100 1300\n  process 17 3G\n  node "
      "3\n");
  const Snapshot now = snapshot(Wanted::all);
  EXPECT_EQ(now.trouble, Trouble::none);
  EXPECT_EQ(now.driver->amdsmi_version, "26.1.3");
  EXPECT_EQ(now.driver->amd_version, "6.14.14");
  EXPECT_EQ(now.driver->version, "");
  ASSERT_EQ(now.gpus.size(), 1u);
  const Gpu& gpu = now.gpus[0];
  EXPECT_EQ(gpu.uuid, "GPU-7fd6f0a4cd0d2b6c");
  EXPECT_EQ(gpu.bus_id, "00000001:c1:1f.7");
  EXPECT_EQ(gpu.name, "AMD Instinct MI300X");
  EXPECT_EQ(gpu.vendor, Vendor::amd);
  EXPECT_EQ(gpu.kfd_node, 3);
  EXPECT_FALSE(gpu.mig);
  EXPECT_EQ(gpu.memory->total, GiB(192));
  EXPECT_EQ(gpu.memory->used, GiB(3));
  EXPECT_EQ(gpu.memory->free, GiB(189));
  EXPECT_EQ(gpu.utilization->compute_percent, 35);
  EXPECT_EQ(gpu.utilization->memory_percent, 10);
  EXPECT_DOUBLE_EQ(gpu.power->watts, 120);
  EXPECT_DOUBLE_EQ(gpu.power->limit_watts.value(), 750);
  EXPECT_EQ(*gpu.temperature_c, 45);
  EXPECT_EQ(gpu.clocks->sm_mhz, 2100);
  EXPECT_EQ(gpu.clocks->memory_mhz, 1300);
  ASSERT_EQ(gpu.processes->size(), 1u);
  EXPECT_EQ(gpu.processes->at(0).pid, 17);
  EXPECT_EQ(gpu.processes->at(0).used, GiB(3));
}

TEST(Amd, KnowsEachVersionsLayout) {
  const std::string gpu = "gpu 1\n  bus 0000:01:00.0\n  power 120 300\n  process 8 unknown\n  process 7 1G\n";
  struct Case {
    const char* version;
    FakeGpus::Kind kind;
    bool known;
  };
  const Case cases[] = {{"23 4 0 0", FakeGpus::old, true},    {"24 5 0 0", FakeGpus::old, true},
                        {"24 6 2 0", FakeGpus::usual, true},  {"25 3 0 0", FakeGpus::usual, false},
                        {"26 0 2 0", FakeGpus::usual, true},  {"27 2 0 0", FakeGpus::usual, false},
                        {"28 0 0 0", FakeGpus::usual, false}, {"0 0 0 0", FakeGpus::usual, false}};
  for (const auto& [version, kind, known] : cases) {
    const FakeAmdGpus gpus("library " + std::string(version) + "\n" + gpu, kind);
    const Snapshot now = snapshot(Wanted::all);
    ASSERT_EQ(uuids(now), "GPU-0000000000000001") << version;
    const Gpu& one = now.gpus[0];
    if (!known) {
      EXPECT_EQ(one.power.outcome(), Outcome::not_supported) << version;
      EXPECT_EQ(one.processes.outcome(), Outcome::not_supported) << version;
      continue;
    }
    ASSERT_TRUE(one.power) << version;
    EXPECT_DOUBLE_EQ(one.power->watts, 120) << version;
    EXPECT_DOUBLE_EQ(one.power->limit_watts.value_or(0), 300) << version;
    ASSERT_TRUE(one.processes) << version;
    ASSERT_EQ(one.processes->size(), 2u) << version;
    EXPECT_EQ(one.processes->at(0).pid, 7);
    EXPECT_EQ(one.processes->at(0).used, GiB(1));
    EXPECT_TRUE(one.processes->at(0).compute);
    EXPECT_EQ(one.processes->at(1).used, std::nullopt);
  }
}

TEST(Amd, ReadsLongProcessLists) {
  std::string script = "gpu 1\n";
  for (int pid = 300; pid > 0; --pid) script += "  process " + std::to_string(pid) + " 1M\n";
  script += "  process 0 1M\n  process 300 2M\n";
  for (const auto kind : {FakeGpus::usual, FakeGpus::old}) {
    const FakeAmdGpus gpus(
        (kind == FakeGpus::old ? "library 24 5 0 0\n" : "") + script + "  bus 0000:01:00.0\n", kind);
    const Gpu gpu = snapshot(Wanted::processes).gpus.at(0);
    ASSERT_EQ(gpu.processes->size(), 300u);
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ(gpu.processes->at(i).pid, static_cast<int64_t>(i + 1));
    EXPECT_EQ(gpu.processes->at(0).used, MiB(1));
  }
}

TEST(Amd, TellsWhyThereIsNoValue) {
  const FakeAmdGpus gpus(
      "gpu 1\n  bus 0000:01:00.0\n  memory 1G 0 0\n  error amdsmi_get_power_info 12\n"
      "  error amdsmi_get_temp_metric 10\n"
      "gpu 2\n  bus 0000:02:00.0\n  memory 1G 0 2G\n  utilization 101 0\n  temperature 5000\n"
      "gpu 3\n  bus 0000:03:00.0\n  memory 72057594037927937 0 0\n  utilization 65535 0\n  clocks 65535 "
      "0\n");
  const Snapshot now = snapshot(Wanted::all);
  ASSERT_EQ(now.gpus.size(), 3u);
  EXPECT_EQ(now.gpus[0].utilization.outcome(), Outcome::not_supported);
  EXPECT_EQ(now.gpus[0].power.text(), "amdsmi_get_power_info: An I/O Error (12)");
  EXPECT_EQ(now.gpus[0].temperature_c.text(), "amdsmi_get_temp_metric: Permission Denied (10)");
  EXPECT_EQ(now.gpus[1].memory.outcome(), Outcome::error);
  EXPECT_EQ(now.gpus[1].utilization.outcome(), Outcome::error);
  EXPECT_EQ(now.gpus[1].temperature_c.outcome(), Outcome::error);
  EXPECT_EQ(now.gpus[2].memory.outcome(), Outcome::error);
  EXPECT_EQ(now.gpus[2].utilization.outcome(), Outcome::not_supported);
  EXPECT_EQ(now.gpus[2].clocks.outcome(), Outcome::not_supported);
}

TEST(Amd, AsksOnlyWhatIsWanted) {
  const FakeAmdGpus gpus("gpu 1\n  bus 0000:01:00.0\n  memory 1G 0 0\n  power 10\n  process 5 1M\n");
  const Snapshot now = snapshot(Wanted::memory);
  EXPECT_TRUE(now.gpus.at(0).memory);
  EXPECT_EQ(now.gpus[0].power.outcome(), Outcome::not_asked);
  for (const char* slow : {"amdsmi_get_power_info", "amdsmi_get_gpu_process_list", "amdsmi_get_gpu_activity",
                           "amdsmi_topo_get_link_type", "amdsmi_get_temp_metric", "amdsmi_get_clock_info"}) {
    EXPECT_EQ(gpus.calls(slow), 0) << slow;
  }
}

TEST(Amd, FindsTheUniqueIdInTheLibrarysUuid) {
  using amdsmi::unique_id_of;
  EXPECT_EQ(unique_id_of("7fff74a1-0000-1000-80d6-f0a4cd0d2b6c"), 0x7fd6f0a4cd0d2b6c);
  EXPECT_EQ(unique_id_of("00ff74a1-0000-1000-8000-000000000000"), std::nullopt);
  for (const char* text : {"", "7fff74a1-0000-1000-80d6-f0a4cd0d2b6", "7fff74a1-0000-4000-80d6-f0a4cd0d2b6c",
                           "7fff74a1+0000-1000-80d6-f0a4cd0d2b6c", "7fff74a1-0000-1000-80d6-f0a4cd0d2b6g"}) {
    EXPECT_EQ(unique_id_of(text), std::nullopt) << text;
  }
}

TEST(Amd, NamesGpusThatHaveNoUniqueId) {
  const FakeAmdGpus gpus(
      "gpu none\n  bus 0000:0a:00.0\ngpu 0\n  bus 0000:0b:00.0\ngpu none\n"
      "gpu 5\n  bus 0000:01:00.0\ngpu 5\n  bus 0000:02:00.0\n");
  const Snapshot now = snapshot(Wanted::links);
  EXPECT_EQ(uuids(now), "GPU-XX-00000000-0a-00-0 GPU-XX-00000000-0b-00-0");
  // One that has no place either, and the partitions of one GPU, which no list can tell apart.
  ASSERT_EQ(now.lost.size(), 3u);
  EXPECT_EQ(now.lost[0].why, "it has neither a unique id nor a place");
  EXPECT_NE(now.lost[1].why.find("a partitioned GPU cannot be named"), std::string::npos);
  EXPECT_EQ(now.lost[2].driver_index, 4);
  EXPECT_EQ(now.lost[2].vendor, Vendor::amd);
  EXPECT_EQ(now.links.size(), 4u);
}

TEST(Amd, ReadsLinks) {
  const FakeAmdGpus gpus(
      "topology 0 1 1\ntopology 0 2 2\ntopology 1 2 3\n"
      "gpu 1\n  bus 0000:03:00.0\ngpu 2\n  bus 0000:02:00.0\ngpu 3\n  bus 0000:01:00.0\n"
      "gpu 4\n  bus 0000:04:00.0\n");
  const Snapshot now = snapshot(Wanted::links);
  ASSERT_EQ(now.gpus.size(), 4u);
  EXPECT_EQ(now.link(2, 1).path, Path::xgmi);  // By bus id the third GPU is the library's first.
  EXPECT_EQ(now.link(2, 0).path, Path::numa_node);
  EXPECT_EQ(now.link(1, 0).path, Path::machine);
  EXPECT_EQ(now.link(3, 0).path, Path::unknown);
  EXPECT_TRUE(better(now.link(2, 1), now.link(2, 0)));
  EXPECT_STREQ(to_string(Path::xgmi), "xGMI");
}

TEST(Amd, OneLostGpuHidesNoOther) {
  for (const char* how : {"  lost\n", "  error amdsmi_get_gpu_device_bdf 12\n",
                          "  error amdsmi_get_gpu_memory_usage 12\n", "  error amdsmi_get_power_info 31\n"}) {
    const FakeAmdGpus gpus(std::string("gpu a\n  bus 0000:01:00.0\n  memory 8G 0 1G\n  power 5\n") + how +
                           "gpu b\n  bus 0000:02:00.0\n  memory 8G 0 2G\n");
    const Snapshot now = snapshot(Wanted::all);
    ASSERT_EQ(uuids(now), "GPU-000000000000000b") << how;
    EXPECT_EQ(now.gpus[0].memory->used, GiB(2));
    ASSERT_EQ(now.lost.size(), 1u) << how;
    EXPECT_EQ(now.lost[0].vendor, Vendor::amd);
    EXPECT_NE(now.lost[0].why.find("amdsmi_get"), std::string::npos) << now.lost[0].why;
  }
  const FakeAmdGpus gpus("gpu a\n  bus 0000:01:00.0\n  error amdsmi_get_gpu_device_uuid 10\n");
  const Snapshot now = snapshot(Wanted::nothing);
  ASSERT_EQ(now.lost.size(), 1u);
  EXPECT_TRUE(now.lost[0].forbidden);
}

TEST(Amd, StartsOnceAndNeverStops) {
  FakeAmdGpus gpus(kTwoAmdGpus);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_EQ(gpus.calls("amdsmi_init"), 1);
  gpus.change(std::string("gpu c\n  bus 0000:01:00.0\n"));  // All earlier handles are stale.
  EXPECT_EQ(uuids(snapshot(Wanted::nothing)), "GPU-000000000000000c");
  shut_down();
  EXPECT_EQ(gpus.calls("amdsmi_shut_down"), 0);
}

TEST(Amd, SaysWhyThereIsNoDriver) {
  const StartFailure failures[] = {
      {"error amdsmi_init 34\n", Trouble::not_loaded, "sudo modprobe amdgpu"},
      {"error amdsmi_init 10\n", Trouble::no_permission, "/dev/kfd"},
      {"error amdsmi_init 7\n", Trouble::other, "amdsmi_init: Unknown Error (7)"},
      {"error amdsmi_get_socket_handles 7\n", Trouble::other, "amdsmi_get_socket_handles: Unknown Error (7)"},
      {"error amdsmi_get_socket_handles 2\n", Trouble::other, "amdsmi_get_socket_handles"},
  };
  expect_said_and_cured<FakeAmdGpus>(failures, kTwoAmdGpus);
  const FakeAmdGpus gpus(kTwoAmdGpus);
  test::Environment environment;
  environment.set("INNKEEPER_AMDSMI", "libm.so.6");
  EXPECT_EQ(snapshot(Wanted::all).trouble, Trouble::bad_library);
}

TEST(Amd, SaysThatThereIsNeitherVendor) {
  const FakeAmdGpus gpus(kTwoAmdGpus);
  test::Environment environment;
  environment.set("INNKEEPER_AMDSMI", "/nonexistent/libamd_smi.so");
  const Snapshot none = snapshot(Wanted::all);
  EXPECT_EQ(none.trouble, Trouble::no_library);
  EXPECT_EQ(none.driver.outcome(), Outcome::no_driver);
  EXPECT_NE(none.driver.text().find("NVML cannot be loaded"), std::string::npos);
  EXPECT_NE(none.driver.text().find("AMD SMI cannot be loaded"), std::string::npos);
  EXPECT_EQ(none.driver.text().find('\n'), std::string::npos);
  EXPECT_EQ(none.absent.size(), 2u);
}

TEST(Amd, BothVendorsStandSideBySide) {
  FakeGpus nvidia(
      "topology 0 1 10\n"
      "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  memory 8G 0 1G\n"
      "gpu GPU-bbbbbbbb\n  bus 00000000:03:00.0\n  memory 8G 0 1G\ngpu GPU-cccccccc\n  lost\n");
  FakeAmdGpus amd(
      "topology 0 1 1\ngpu a\n  bus 0000:04:00.0\n  memory 8G 0 3G\ngpu b\n  bus 0000:02:00.0\ngpu c\n  "
      "lost\n");
  const Snapshot now = snapshot(Wanted::all);
  EXPECT_EQ(uuids(now), "GPU-aaaaaaaa GPU-000000000000000b GPU-bbbbbbbb GPU-000000000000000a");
  EXPECT_EQ(now.link(0, 2).path, Path::pci_switch);
  EXPECT_EQ(now.link(1, 3).path, Path::xgmi);
  EXPECT_EQ(now.link(0, 1).path, Path::unknown);
  EXPECT_EQ(now.driver->version, "550.54.15");
  EXPECT_EQ(now.driver->amdsmi_version, "26.0.2");
  ASSERT_EQ(now.lost.size(), 2u);
  EXPECT_EQ(now.lost[0].vendor, Vendor::nvidia);
  EXPECT_EQ(now.lost[1].vendor, Vendor::amd);
  EXPECT_TRUE(now.absent.empty());

  // A failure of one vendor's library does not affect the other's.
  nvidia.change("error nvmlDeviceGetCount_v2 999\n");
  const Snapshot without = snapshot(Wanted::all);
  EXPECT_EQ(uuids(without), "GPU-000000000000000b GPU-000000000000000a");
  EXPECT_EQ(without.trouble, Trouble::none);
  EXPECT_TRUE(without.driver);
  ASSERT_EQ(without.absent.size(), 1u);
  EXPECT_EQ(without.absent[0].vendor, Vendor::nvidia);
  EXPECT_NE(without.absent[0].text.find("(999)"), std::string::npos);
  // If both libraries fail, the snapshot has the texts of both.
  amd.change("error amdsmi_get_socket_handles 7\n");
  const Snapshot neither = snapshot(Wanted::all);
  EXPECT_EQ(neither.trouble, Trouble::other);
  EXPECT_NE(neither.driver.text().find("(999)"), std::string::npos);
  EXPECT_NE(neither.driver.text().find("(7)"), std::string::npos);
}

TEST(Amd, SurvivesThatAnotherUserShutsTheLibraryDown) {
  const FakeAmdGpus gpus(kTwoAmdGpus);
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  shut_down_from_outside(test::fake_amdsmi_path(), "amdsmi_shut_down");
  const Snapshot now = snapshot(Wanted::memory);
  EXPECT_EQ(now.gpus.size(), 2u);
  EXPECT_EQ(now.trouble, Trouble::none);
  EXPECT_EQ(gpus.calls("amdsmi_init"), 2);
}

TEST(Amd, AChildStartsItsOwn) {
  const FakeAmdGpus gpus(kTwoAmdGpus);
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_TRUE(test::holds_in_child([&] {
    const bool sees = snapshot(Wanted::memory).gpus.size() == 2 && gpus.calls("amdsmi_init") == 1;
    shut_down();
    return sees && gpus.calls("amdsmi_shut_down") == 0;
  }));
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_EQ(gpus.calls("amdsmi_init"), 1);
}

TEST(Amd, NoLockIsHeldAcrossACall) {
  FakeAmdGpus gpus(kTwoAmdGpus);
  expect_no_lock_across(gpus, kTwoAmdGpus, "amdsmi_get_gpu_device_bdf");
}

TEST(Amd, NothingOfGarbageGetsOut) {
  const uint64_t seed = test::from_environment("INNKEEPER_SEED", 1);
  const std::string machine =
      "topology 0 1 1\n"
      "gpu a\n  bus 0000:01:00.0\n  name AMD Instinct MI300X\n  memory 8G 0 1G\n  utilization 1 1\n"
      "  power 100 700\n  temperature 40\n  clocks 1000 2000\n  process 5 1G\n  process 6 1G\n  node 1\n"
      "gpu b\n  bus 0000:02:00.0\n  memory 8G 0 1G\n";
  for (const int percent : {2, 20, 60, 100}) {
    for (const auto kind : {FakeGpus::quiet, FakeGpus::old}) {
      const FakeAmdGpus gpus("garbage " + std::to_string(seed) + " " + std::to_string(percent) + "\n" +
                                 (kind == FakeGpus::old ? "library 24 5 0 0\n" : "") + machine,
                             kind);
      size_t seen = 0;
      for (uint64_t round = 0; round < test::from_environment("INNKEEPER_STEPS", 40); ++round) {
        const Snapshot now = snapshot(Wanted::all);
        ASSERT_EQ(test::wrong_in(now), "");
        for (const Gpu& gpu : now.gpus)
          EXPECT_EQ(gpu.uuid.find_first_not_of("GPUX-0123456789abcdef"), std::string::npos) << gpu.uuid;
        EXPECT_EQ(now.links.size(), now.gpus.size() * now.gpus.size());
        EXPECT_EQ(resolve_visible_amd({}, now).uuids.size(), now.gpus.size());
        seen += now.gpus.size();
      }
      if (percent <= 20) {
        EXPECT_GT(seen, 10u);
      }
    }
  }
}

}  // namespace
}  // namespace innkeeper::telemetry
