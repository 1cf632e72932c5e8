// Telemetry through its real loader: each test has a script of its own for the fake NVML library.
#include "telemetry/snapshot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/telemetry_checks.h"
#include "telemetry/gpus.h"

namespace innkeeper::telemetry {
namespace {

const Wanted kQuick = Wanted::memory | Wanted::utilization;

TEST(Telemetry, ReadsAllOfAGpu) {
  const FakeGpus gpus(
      "driver 550.54.15\n"
      "nvml 12.550.54.15\n"
      "cuda 12040\n"
      "gpu GPU-11112222-3333\n  bus 00000000:C1:00.0\n  name NVIDIA H200\n  memory 140G 600M 3G\n"
      "  utilization 35 10\n  power 120.5 700\n  temperature 45\n  clocks 1980 2619\n  process 17 3G\n");
  const Snapshot now = snapshot(Wanted::all);
  EXPECT_EQ(now.trouble, Trouble::none);
  EXPECT_EQ(now.driver->version, "550.54.15");
  EXPECT_EQ(now.driver->nvml_version, "12.550.54.15");
  EXPECT_EQ(now.driver->cuda_major, 12);
  EXPECT_EQ(now.driver->cuda_minor, 4);
  ASSERT_EQ(now.gpus.size(), 1u);
  const Gpu& gpu = now.gpus[0];
  EXPECT_EQ(gpu.uuid, "GPU-11112222-3333");
  EXPECT_EQ(gpu.bus_id, "00000000:c1:00.0");
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.vendor, Vendor::nvidia);
  EXPECT_FALSE(gpu.mig);
  EXPECT_EQ(gpu.memory->total, GiB(140));
  EXPECT_EQ(gpu.memory->reserved, MiB(600));
  // The library's own "used" includes reserved memory; ours does not.
  EXPECT_EQ(gpu.memory->used, GiB(3));
  EXPECT_EQ(gpu.memory->free, GiB(137) - MiB(600));
  EXPECT_FALSE(gpu.memory->unified);
  EXPECT_EQ(gpu.utilization->compute_percent, 35);
  EXPECT_EQ(gpu.utilization->memory_percent, 10);
  EXPECT_DOUBLE_EQ(gpu.power->watts, 120.5);
  EXPECT_DOUBLE_EQ(gpu.power->limit_watts.value(), 700);
  EXPECT_EQ(*gpu.temperature_c, 45);
  EXPECT_EQ(gpu.clocks->sm_mhz, 1980);
  EXPECT_EQ(gpu.clocks->memory_mhz, 2619);
  ASSERT_EQ(gpu.processes->size(), 1u);
  EXPECT_EQ(gpu.processes->at(0).pid, 17);
}

// Idling and a user's limit are no slowdown.
TEST(Telemetry, SaysWhetherAGpuIsSlowed) {
  const std::pair<const char*, bool> reasons[] = {{"0", false}, {"5", false},  {"8", true},  {"32", true},
                                                  {"64", true}, {"128", true}, {"132", true}};
  for (const auto& [bits, slowed] : reasons) {
    const FakeGpus gpus(std::string("gpu GPU-11112222\n  clocks 900 900\n  clock_reasons ") + bits + "\n");
    EXPECT_EQ(snapshot(Wanted::clocks).gpus.at(0).clocks->slowed, slowed) << bits;
  }
  const FakeGpus untold("gpu GPU-11112222\n  clocks 900 900\n");
  EXPECT_FALSE(snapshot(Wanted::clocks).gpus.at(0).clocks->slowed);
}

TEST(Telemetry, SortsGpusByTheirPlace) {
  const FakeGpus gpus(
      "gpu GPU-cccccccc\n  bus 00000001:01:00.0\n"
      "gpu GPU-dddddddd\n"  // tells no place
      "gpu GPU-bbbbbbbb\n  bus 00000000:A1:00.0\n"
      "gpu GPU-aaaaaaaa\n  bus 00000000:02:00.0\n");
  const Snapshot now = snapshot(Wanted::nothing);
  EXPECT_EQ(uuids(now), "GPU-aaaaaaaa GPU-bbbbbbbb GPU-cccccccc GPU-dddddddd");
  EXPECT_EQ(now.gpus[0].driver_index, 3);
  EXPECT_EQ(now.gpus[3].bus_id, "");
  EXPECT_EQ(now.find("GPU-cccccccc"), &now.gpus[2]);
  EXPECT_EQ(now.find("GPU-c"), nullptr);
}

TEST(Telemetry, AsksOnlyWhatIsWanted) {
  const FakeGpus gpus("gpu GPU-aaaaaaaa\n  memory 1G 0 0\n  power 10\n  process 5 1M\n");
  const Snapshot now = snapshot(Wanted::memory);
  EXPECT_TRUE(now.gpus[0].memory);
  EXPECT_EQ(now.gpus[0].power.outcome(), Outcome::not_asked);
  EXPECT_EQ(now.gpus[0].processes.outcome(), Outcome::not_asked);
  for (const char* slow :
       {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetNvLinkState", "nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo"}) {
    EXPECT_EQ(gpus.calls(slow), 0) << slow;
  }
  EXPECT_EQ(gpus.calls("nvmlDeviceGetMemoryInfo_v2"), 1);
}

TEST(Telemetry, TellsWhyThereIsNoValue) {
  const FakeGpus gpus(
      "gpu GPU-aaaaaaaa\n  memory 1G 0 0\n  error nvmlDeviceGetPowerUsage 999\n"
      "  error nvmlDeviceGetTemperature 4\n");
  const Gpu gpu = snapshot(Wanted::all).gpus.at(0);
  EXPECT_EQ(gpu.utilization.outcome(), Outcome::not_supported);
  EXPECT_EQ(gpu.power.outcome(), Outcome::error);
  EXPECT_EQ(gpu.power.text(), "nvmlDeviceGetPowerUsage: Unknown Error (999)");
  EXPECT_EQ(gpu.temperature_c.text(), "nvmlDeviceGetTemperature: Insufficient Permissions (4)");
}

TEST(Telemetry, FallsBackToOlderFunctions) {
  const std::string script =
      "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  memory 10G 1G 2G\n  process 7 1G\n  process 8 unknown\n"
      "  process 7 1G graphics\n  utilization 1 1\n";
  const FakeGpus gpus(script, FakeGpus::old);
  const Snapshot now = snapshot(Wanted::all);
  ASSERT_EQ(uuids(now), "GPU-aaaaaaaa");
  EXPECT_EQ(now.driver->cuda_major, 12);
  const Gpu& gpu = now.gpus[0];
  EXPECT_EQ(gpu.bus_id, "00000000:01:00.0");
  EXPECT_EQ(gpu.memory->free, GiB(7));
  EXPECT_EQ(gpu.memory->reserved, Bytes(0));  // The library does not separate it.
  EXPECT_EQ(gpu.memory->used, GiB(3));
  ASSERT_EQ(gpu.processes->size(), 2u);
  EXPECT_EQ(gpu.processes->at(0).used, GiB(1));
  EXPECT_TRUE(gpu.processes->at(0).compute && gpu.processes->at(0).graphics);
  EXPECT_EQ(gpu.processes->at(1).used, std::nullopt);
}

TEST(Telemetry, FallsBackWhereTheDriverIsOlderThanTheLibrary) {
  const FakeGpus gpus(
      "error nvmlDeviceGetMemoryInfo_v2 25\nerror nvmlDeviceGetComputeRunningProcesses_v3 13\n"
      "error nvmlDeviceGetPciInfo_v3 13\n"
      "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  memory 10G 1G 2G\n  process 7 1G\n");
  const Gpu gpu = snapshot(Wanted::all).gpus.at(0);
  EXPECT_EQ(gpu.memory->used, GiB(3));
  EXPECT_EQ(gpu.processes->size(), 1u);
  EXPECT_EQ(gpu.bus_id, "00000000:01:00.0");
  EXPECT_EQ(gpus.calls("nvmlDeviceGetComputeRunningProcesses_v2"), 1);
}

TEST(Telemetry, TakesTheMachinesMemoryWhereAGpuHasNone) {
  const FakeGpus gpus("gpu GPU-aaaaaaaa\n  name NVIDIA GB10\n  utilization 1 1\n");
  const Gpu gpu = snapshot(kQuick).gpus.at(0);
  ASSERT_TRUE(gpu.memory);
  EXPECT_TRUE(gpu.memory->unified);
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  EXPECT_EQ(gpu.memory->total, Bytes(pages * sysconf(_SC_PAGESIZE)));
  EXPECT_GT(gpu.memory->free, Bytes(0));
  EXPECT_EQ(gpu.memory->used + gpu.memory->free, gpu.memory->total);
}

TEST(Telemetry, TakesNoSentinelForANumber) {
  const FakeGpus gpus(
      "gpu GPU-aaaaaaaa\n  memory 18446744073709551615 0 0\n  process 5 unknown\n  utilization 4294967295 "
      "0\n"
      "  temperature 4294967295\n"
      "gpu GPU-bbbbbbbb\n  memory 8G 18446744073709551615 0\n  utilization 101 0\n  temperature 5000\n"
      "gpu GPU-cccccccc\n  memory 72057594037927937 0 0\n");
  const Snapshot now = snapshot(Wanted::all);
  ASSERT_EQ(now.gpus.size(), 3u);
  EXPECT_EQ(now.gpus[0].memory.outcome(), Outcome::not_supported);
  EXPECT_EQ(now.gpus[0].processes->at(0).used, std::nullopt);
  EXPECT_EQ(now.gpus[0].utilization.outcome(), Outcome::not_supported);
  EXPECT_EQ(now.gpus[0].temperature_c.outcome(), Outcome::not_supported);
  EXPECT_EQ(now.gpus[1].utilization.outcome(), Outcome::error);
  EXPECT_EQ(now.gpus[1].temperature_c.outcome(), Outcome::error);
  EXPECT_EQ(now.gpus[2].memory.outcome(), Outcome::error);
}

TEST(Telemetry, MergesProcessLists) {
  std::string script = "gpu GPU-aaaaaaaa\n";
  for (int pid = 300; pid > 0; --pid) script += "  process " + std::to_string(pid) + " 1M\n";
  script += "  process 300 2M graphics\n  process 301 unknown graphics\n  process 0 1M\n";
  const FakeGpus gpus(script);
  const Gpu gpu = snapshot(Wanted::processes).gpus.at(0);
  ASSERT_EQ(gpu.processes->size(), 301u);
  for (size_t i = 0; i < 301; ++i) EXPECT_EQ(gpu.processes->at(i).pid, static_cast<int64_t>(i + 1));
  const Process& both = gpu.processes->at(299);
  EXPECT_TRUE(both.compute && both.graphics);
  EXPECT_EQ(both.used, MiB(2));
  EXPECT_FALSE(gpu.processes->at(300).compute);
}

TEST(Telemetry, AvoidsTheBrokenThirdProcessList) {
  const FakeGpus gpus("driver 535.54.03\ngpu GPU-aaaaaaaa\n  process 7 1G\n  process 8 2G\n");
  const Gpu gpu = snapshot(Wanted::processes).gpus.at(0);
  ASSERT_EQ(gpu.processes->size(), 2u);
  EXPECT_EQ(gpu.processes->at(1).pid, 8);
  EXPECT_EQ(gpu.processes->at(1).used, GiB(2));
  for (const char* version : {"535.43.02", "535.86"}) EXPECT_TRUE(nvml::third_list_is_broken(version));
  for (const char* version : {"535.42.1", "535.98", "545.54.03", "535", ""}) {
    EXPECT_FALSE(nvml::third_list_is_broken(version)) << version;
  }
}

TEST(Telemetry, ListsMigInstances) {
  const FakeGpus gpus(
      "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  name NVIDIA A100\n  memory 40G 1G 0\n  mig 7\n"
      "  error nvmlDeviceGetMemoryInfo_v2 4\n  error nvmlDeviceGetComputeRunningProcesses_v3 4\n"
      "instance MIG-22222222 5 0\n  name NVIDIA A100 MIG 3g.20gb\n  memory 20G 16M 1G\n  process 12 1G\n"
      "instance MIG-11111111 1 0\n  memory 5G 16M 0\n"
      "gpu GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  memory 40G 1G 0\n");
  const Snapshot now = snapshot(Wanted::all);
  ASSERT_EQ(uuids(now), "GPU-aaaaaaaa GPU-bbbbbbbb");
  const Gpu& gpu = now.gpus[0];
  EXPECT_TRUE(gpu.mig);
  EXPECT_FALSE(now.gpus[1].mig);
  EXPECT_EQ(gpu.memory.outcome(), Outcome::error);  // The parent's value needs privileges.
  ASSERT_EQ(gpu.instances.size(), 2u);
  EXPECT_EQ(gpu.instances[0].uuid, "MIG-11111111");
  EXPECT_EQ(gpu.instances[1].gpu_instance, 5);
  EXPECT_EQ(gpu.instances[1].compute_instance, 0);
  EXPECT_EQ(gpu.instances[1].name, "NVIDIA A100 MIG 3g.20gb");
  EXPECT_EQ(gpu.instances[1].memory->used, GiB(1));
  ASSERT_TRUE(gpu.processes);
  ASSERT_EQ(gpu.processes->size(), 1u);
  EXPECT_EQ(gpu.processes->at(0).instance_uuid, "MIG-22222222");
  EXPECT_EQ(now.find("MIG-22222222"), &gpu);
  EXPECT_EQ(now.find_instance("MIG-22222222"), &gpu.instances[1]);
  EXPECT_EQ(now.find_instance("GPU-aaaaaaaa"), nullptr);
}

TEST(Telemetry, ReadsLinks) {
  const FakeGpus gpus(
      "topology 0 1 10\ntopology 0 2 50\ntopology 1 2 50\ntopology 0 3 0\ntopology 1 3 30\n"
      "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  nvlink 1 4\n"
      "gpu GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  nvlink 0 4\n"
      "gpu GPU-cccccccc\n  bus 00000000:03:00.0\n  nvlink switch 18\n"
      "gpu GPU-dddddddd\n  bus 00000000:04:00.0\n  nvlink switch 12\n");
  const Snapshot now = snapshot(Wanted::links);
  EXPECT_EQ(now.link(0, 1).path, Path::nvlink);
  EXPECT_EQ(now.link(1, 0).nvlinks, 4);
  EXPECT_EQ(now.link(2, 3).nvlinks, 12);  // The lesser count of both: the switch joins all.
  EXPECT_EQ(now.link(0, 2).path, Path::machine);
  EXPECT_EQ(now.link(3, 0).path, Path::board);
  EXPECT_EQ(now.link(1, 3).path, Path::host_bridge);
  EXPECT_EQ(now.link(3, 2).nvlinks, 12);
  EXPECT_EQ(now.link(0, 0).path, Path::unknown);
  EXPECT_EQ(now.link(0, 9).path, Path::unknown);
  EXPECT_TRUE(better(now.link(2, 3), now.link(0, 1)));
  EXPECT_TRUE(better(now.link(0, 1), now.link(0, 3)));
  EXPECT_TRUE(better(now.link(0, 3), now.link(1, 3)));
  EXPECT_FALSE(better(now.link(0, 0), now.link(0, 2)));
  EXPECT_EQ(snapshot(Wanted::memory).links.size(), 0u);
}

TEST(Telemetry, MakesTextPlain) {
  const FakeGpus gpus("gpu GPU-aaaaaaaa\n  name Evil \x1b[31m\x07 GPU\xff\n");
  EXPECT_EQ(snapshot(Wanted::nothing).gpus.at(0).name, "Evil \\x1b[31m\\x07 GPU\\xff");
}

}  // namespace
}  // namespace innkeeper::telemetry
