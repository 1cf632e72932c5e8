// Conversion of a telemetry snapshot into leasing's view of the machine.
#include <gtest/gtest.h>
#include <unistd.h>

#include "lease/from_snapshot.h"
#include "lease/process.h"

namespace innkeeper::lease {
namespace {

TEST(LeaseFromSnapshot, GpusInstancesLinksAndProcesses) {
  telemetry::Snapshot snapshot;
  snapshot.gpus.resize(2);
  snapshot.gpus[0].uuid = "GPU-a";
  snapshot.gpus[0].memory = telemetry::Memory{GiB(80), GiB(1), GiB(9), GiB(70)};
  snapshot.gpus[0].power = telemetry::Power{100, 400.0};
  telemetry::Process process;
  process.pid = getpid();
  process.used = GiB(9);
  snapshot.gpus[0].processes = std::vector<telemetry::Process>{process};
  snapshot.gpus[1].uuid = "GPU-b";
  snapshot.gpus[1].mig = true;
  telemetry::Instance instance;
  instance.uuid = "MIG-b1";
  instance.memory = telemetry::Memory{GiB(10), Bytes(0), Bytes(0), GiB(10)};
  snapshot.gpus[1].instances = {instance};
  snapshot.links.assign(4, {});
  snapshot.links[1] = snapshot.links[2] = {telemetry::Path::nvlink, 4};
  const Machine machine = from_snapshot(snapshot);
  ASSERT_EQ(machine.gpus.size(), 2U);
  EXPECT_EQ(machine.gpus[0].capacity(), GiB(79));
  EXPECT_EQ(machine.gpus[0].power_ratio, 0.25);
  ASSERT_FALSE(machine.gpus[0].processes.empty());
  EXPECT_EQ(machine.gpus[0].processes[0].line, process_line(getpid()));
  EXPECT_EQ(machine.gpus[1].uuid, "MIG-b1");
  EXPECT_FALSE(machine.gpus[1].processes_known);
  ASSERT_EQ(machine.links.size(), 4U);
  EXPECT_GT(machine.links[1], machine.links[0]);
}

}  // namespace
}  // namespace innkeeper::lease
