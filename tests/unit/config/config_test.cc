#include "config/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "config/accelerator_kinds.h"
#include "config/misspelt.h"
#include "device/host.h"
#include "support/environment.h"
#include "support/temporary_directory.h"

namespace innkeeper {
namespace {

const Bytes kHostMemory = GiB(16);

// "sim:0=64.0 MiB host=..." in order; "-" for no budget.
std::string summary(const MachineSpec& spec) {
  std::string text = spec.automatic ? "auto" : "";
  for (const NodeSpec& node : spec.nodes) {
    text += (text.empty() ? "" : " ") + node.name + "=" + (node.budget ? to_string(*node.budget) : "-");
    if (!node.path.empty()) text += "@" + node.path;
  }
  return text;
}

struct GoodCase {
  const char* nodes;
  const char* expected;
};

TEST(Machine, ReadsNodes) {
  const GoodCase cases[] = {
      {"", "auto host=12.8 GiB"},
      {"  ", "auto host=12.8 GiB"},
      {"auto", "auto host=12.8 GiB"},
      {"auto,disk:/tmp:8GiB", "auto host=12.8 GiB disk=8.0 GiB@/tmp"},
      {"auto:20GiB", "auto host=12.8 GiB"},
      {"sim:64MiB", "sim:0=64.0 MiB host=12.8 GiB"},
      {"sim:2x64MiB,host:1GiB", "sim:0=64.0 MiB sim:1=64.0 MiB host=1.0 GiB"},
      {"sim:1x64MiB,sim:2x32MiB,host", "sim:0=64.0 MiB sim:1=32.0 MiB sim:2=32.0 MiB host=12.7 GiB"},
      {"sim:1x6GiB", "sim:0=6.0 GiB host=8.0 GiB"},
      {"disk:/tmp:8GiB , host:1GiB , sim:64MiB", "sim:0=64.0 MiB host=1.0 GiB disk=8.0 GiB@/tmp"},
      {"cuda", "cuda=- host=12.8 GiB"},
      {"cuda:20GiB", "cuda=20.0 GiB host=12.8 GiB"},
      {"cuda:1:20GiB,cuda:0", "cuda:1=20.0 GiB cuda:0=- host=12.8 GiB"},
      {"host:16GiB", "host=16.0 GiB"},
      {"host", "host=12.8 GiB"},
  };
  for (const auto& [nodes, expected] : cases) {
    const Result<MachineSpec> spec = parse_machine(nodes, "", kHostMemory);
    ASSERT_TRUE(spec.ok()) << nodes << ": " << spec.status().message();
    EXPECT_EQ(summary(spec.value()), expected) << nodes;
  }
  EXPECT_EQ(parse_machine("auto:20GiB", "", kHostMemory).value().automatic_budget, GiB(20));
}

TEST(Machine, GivesEachSimulatedNodeItsOptions) {
  const Result<MachineSpec> spec =
      parse_machine("sim:2x64MiB", "random:40,gpu=H100,link=PCIe 5 x16", kHostMemory);
  ASSERT_TRUE(spec.ok());
  const NodeSpec& second = spec.value().nodes[1];
  EXPECT_EQ(second.accelerator, kSim);
  EXPECT_TRUE(second.simulated);
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.sim.name, "sim:1");
  EXPECT_EQ(second.sim.capacity, MiB(64));
  EXPECT_EQ(second.sim.seed, 41u);
  EXPECT_EQ(second.sim.gpu.name, "H100");
  EXPECT_EQ(second.sim.host_link.name, "PCIe 5 x16");
  EXPECT_EQ(second.sim.visibility, sim::Visibility::random);
}

TEST(Machine, ReadsEachKindOfAccelerator) {
  for (const AcceleratorKind& kind : kAcceleratorKinds) {
    const std::string name(kind.name);
    const std::string text = name + (kind.simulated ? ":2x1MiB" : ":0,host," + name + ":1:1MiB");
    const MachineSpec spec = parse_machine(text, "", kHostMemory).value();
    ASSERT_EQ(spec.nodes.size(), 3u) << text;
    const NodeSpec& second = spec.nodes[1];
    EXPECT_EQ(second.kind, NodeKind::accelerator) << text;
    EXPECT_EQ(second.accelerator, kind.name);
    EXPECT_EQ(second.simulated, kind.simulated) << text;
    EXPECT_EQ(second.name, name + ":1");
    EXPECT_EQ(second.index, 1) << text;
    EXPECT_EQ(second.budget, MiB(1)) << text;
    EXPECT_EQ(spec.nodes[2].kind, NodeKind::host) << text;
    EXPECT_EQ(
        parse_machine(name + (kind.simulated ? ":1MiB" : ""), "", kHostMemory).value().nodes[0].accelerator,
        kind.name);
    EXPECT_EQ(parse_machine("host;" + text, "", kHostMemory).status().message(),
              "INNKEEPER_NODES: \"host;" + text.substr(0, text.find(',')) +
                  "\": commas separate nodes, as in \"host," + text.substr(0, text.find(',')) + "\"");
  }
}

TEST(Machine, DirectoriesMayHoldColons) {
  const test::TemporaryDirectory directory("a:b");
  const std::filesystem::path& path = directory.path();
  const Result<MachineSpec> spec = parse_machine("disk:" + path.string() + ":1GiB", "", kHostMemory);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec.value().nodes.back().path, path.string());
}

struct BadCase {
  const char* nodes;
  const char* message;
};

const BadCase kBadNodes[] = {
    {"gpu:1",
     "\"gpu:1\" is no node; expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, host:1GiB or disk:/tmp:8GiB"},
    {"cuda:0,1",
     "\"1\" is no node (each GPU is an item of its own: cuda:0,cuda:1); expected auto, cuda, cuda:0:20GiB, "
     "sim:2x64MiB, "
     "host:1GiB or disk:/tmp:8GiB"},
    {"sim:64MiB,",
     "\"\" is no node; expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, host:1GiB or disk:/tmp:8GiB"},
    {"simm:1x3MiB",
     "\"simm:1x3MiB\" is no node (the nearest is sim); expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, "
     "host:1GiB or disk:/tmp:8GiB"},
    {"Host:1GiB\n",
     "\"Host:1GiB\\x0a\" is no node (the nearest is host); expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, "
     "host:1GiB or "
     "disk:/tmp:8GiB"},
    {"auto:1",
     "\"auto:1\": size \"1\" has no unit, expected a number and one of B, KiB, MiB, GiB, TiB, as in "
     "64MiB"},
    {"auto,auto", "\"auto\": auto was named before"},
    {"sim", "\"sim\" has no size, expected sim:SIZE or sim:COUNTxSIZE, as in sim:2x64MiB"},
    {"sim:", "\"sim:\" has no size, expected sim:SIZE or sim:COUNTxSIZE, as in sim:2x64MiB"},
    {"sim:0x64MiB", "\"sim:0x64MiB\": \"0\" is no count from 1 to 32, as in sim:2x64MiB"},
    {"sim:-2x64MiB", "\"sim:-2x64MiB\": \"-2\" is no count from 1 to 32, as in sim:2x64MiB"},
    {"sim:33x64MiB", "\"sim:33x64MiB\": \"33\" is no count from 1 to 32, as in sim:2x64MiB"},
    {"sim:99999999999x1B",
     "\"sim:99999999999x1B\": \"99999999999\" is no count from 1 to 32, as in sim:2x64MiB"},
    {"sim:2x",
     "\"sim:2x\": size \"\" is missing, expected a number and one of B, KiB, MiB, GiB, TiB, as in "
     "64MiB"},
    {"sim:2x0MiB", "\"sim:2x0MiB\": a budget of 0 B is too small, expected 64B or more, as in 64MiB"},
    {"host:63B", "\"host:63B\": a budget of 63 B is too small, expected 64B or more, as in 64MiB"},
    {"host:-1GiB",
     "\"host:-1GiB\": size \"-1GiB\" is negative, expected a number and one of B, KiB, MiB, GiB, TiB, "
     "as in 64MiB"},
    {"host:",
     "\"host:\": size \"\" is missing, expected a number and one of B, KiB, MiB, GiB, TiB, as in "
     "64MiB"},
    {"cuda:",
     "\"cuda:\": size \"\" is missing, expected a number and one of B, KiB, MiB, GiB, TiB, as in "
     "64MiB"},
    {"cuda:0:",
     "\"cuda:0:\": size \"\" is missing, expected a number and one of B, KiB, MiB, GiB, TiB, as in "
     "64MiB"},
    {"cuda:128", "\"cuda:128\": the index is beyond 127, expected cuda:0:20GiB"},
    {"sim:8388608TiB",
     "\"sim:8388608TiB\": size \"8388608TiB\" is too large, at most 8388607TiB can be counted"},
    {"sim:2x10GiB",
     "\"sim:2x10GiB\": the simulated nodes need 20.0 GiB, but this process may use 16.0 GiB of memory; write "
     "a smaller "
     "size"},
    {"sim:12GiB,sim:6GiB",
     "\"sim:6GiB\": the simulated nodes need 18.0 GiB, but this process may use 16.0 GiB of memory; write a "
     "smaller size"},
    {"sim:32x8388607TiB",
     "\"sim:32x8388607TiB\": the simulated nodes need 8388607.0 TiB, but this process may use 16.0 GiB of "
     "memory; write a "
     "smaller size"},
    {"host:17GiB",
     "\"host:17GiB\": asked 17.0 GiB, but this process may use 16.0 GiB of memory; write a smaller size"},
    {"host:1GiB,host:2GiB", "\"host:2GiB\": host was named before, there is one host memory"},
    {"disk:/tmp:1GiB,disk:/tmp:1GiB", "\"disk:/tmp:1GiB\": disk was named before, there is one spill file"},
    {"disk", "\"disk\" has no directory, expected disk:DIRECTORY:SIZE, as in disk:/tmp:8GiB"},
    {"disk::8GiB", "\"disk::8GiB\" has no directory, expected disk:DIRECTORY:SIZE, as in disk:/tmp:8GiB"},
    {"disk:/tmp", "\"disk:/tmp\" has no size, expected disk:DIRECTORY:SIZE, as in disk:/tmp:8GiB"},
    {"disk:/tmp:0B", "\"disk:/tmp:0B\": a budget of 0 B is too small, expected 64B or more, as in 64MiB"},
    {"disk:/no/such/directory:8GiB",
     "\"disk:/no/such/directory:8GiB\": directory \"/no/such/directory\": No such file or directory, "
     "expected a "
     "directory that is "
     "there, as in disk:/tmp:8GiB"},
    {"disk:/proc/self/status:8GiB",
     "\"disk:/proc/self/status:8GiB\": \"/proc/self/status\" is no directory, expected one, as in "
     "disk:/tmp:8GiB"},
    {"cuda:0,cuda:0:1GiB", "\"cuda:0:1GiB\": cuda:0 was named before"},
    {"cuda,cuda", "\"cuda\": cuda was named before"},
    {"cuda,cuda:1", "\"cuda:1\": cuda means all GPUs, so no GPU can be named beside it"},
    {"auto,host:1GiB",
     "auto names the GPUs and host, so host cannot stand beside it; only a disk can, as in "
     "auto,disk:/tmp:8GiB"},
    {"sim:1MiB,auto",
     "auto names the GPUs and host, so sim:0 cannot stand beside it; only a disk can, as in "
     "auto,disk:/tmp:8GiB"},
    {"sim:1x64MiB;host", "\"sim:1x64MiB;host\": commas separate nodes, as in \"sim:1x64MiB,host\""},
    {"host:1GiB,sim:64MiB ; cuda:0 |disk:/tmp:1GiB",
     "\"sim:64MiB ; cuda:0 |disk:/tmp:1GiB\": commas separate nodes, as in "
     "\"sim:64MiB,cuda:0,disk:/tmp:1GiB\""},
    {"host sim:64MiB", "\"host sim:64MiB\": commas separate nodes, as in \"host,sim:64MiB\""},
    {"host; 64MiB",
     "\"host; 64MiB\" is no node; expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, host:1GiB or "
     "disk:/tmp:8GiB"},
    {"sim:32x1MiB", "more than 32 nodes, host included; name fewer"},
    {"sim:16x1MiB,host:1GiB,sim:16x1MiB", "more than 32 nodes, host included; name fewer"},
};

TEST(Machine, SaysInOneLineWhatIsWrong) {
  for (const auto& [nodes, message] : kBadNodes) {
    const Result<MachineSpec> spec = parse_machine(nodes, "", kHostMemory);
    ASSERT_FALSE(spec.ok()) << nodes << " was taken as " << summary(spec.value());
    EXPECT_EQ(spec.status().code(), Code::invalid_argument);
    EXPECT_EQ(spec.status().message(), "INNKEEPER_NODES: " + std::string(message));
    EXPECT_EQ(spec.status().message().find('\n'), std::string::npos);
  }
}

TEST(MachineDeathTest, RefusesADirectoryThatCannotBeWritten) {
  const test::TemporaryDirectory directory("config-test");
  directory.open_to_all();
  const std::filesystem::path path = directory.path() / "locked";
  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms(0555));
  const std::string item = "disk:" + path.string() + ":1GiB";
  const auto parse_as_a_common_user = [&item] {
    // Root may write anywhere, so the child becomes another user.
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    const Result<MachineSpec> spec = parse_machine(item, "", kHostMemory);
    std::fputs(spec.ok() ? "taken" : spec.status().message().c_str(), stderr);
    ::_exit(spec.ok() ? 1 : 0);
  };
  EXPECT_EXIT(parse_as_a_common_user(), testing::ExitedWithCode(0), "cannot be written: Permission denied");
}

TEST(Machine, TheMostNodesAreAccepted) {
  EXPECT_EQ(parse_machine("sim:31x1MiB", "", kHostMemory).value().nodes.size(), kMaxNodes);
  EXPECT_EQ(parse_machine("sim:30x1MiB,host,disk:/tmp:1GiB", "", kHostMemory).value().nodes.size(),
            kMaxNodes);
}

TEST(SimOptions, AreRead) {
  EXPECT_EQ(parse_sim_options("").value().visibility, sim::Visibility::late);
  EXPECT_TRUE(parse_sim_options("").value().poison);
  const sim::Options early = parse_sim_options("early").value();
  EXPECT_EQ(early.visibility, sim::Visibility::early);
  EXPECT_FALSE(early.poison);
  EXPECT_TRUE(parse_sim_options("poison=on,early").value().poison);
  EXPECT_FALSE(parse_sim_options("late, poison=off").value().poison);
  EXPECT_EQ(parse_sim_options("random").value().seed, 0u);
  const sim::Options full =
      parse_sim_options("random:18446744073709551615,gpu=RTX 4090,peer=NVLink 4").value();
  EXPECT_EQ(full.seed, UINT64_MAX);
  EXPECT_EQ(full.gpu.name, "RTX 4090");
  EXPECT_EQ(full.peer_link.name, "NVLink 4");
  EXPECT_EQ(full.host_link.name, "PCIe 4 x16");
}

TEST(SimOptions, AGpuComesWithItsUsualLink) {
  EXPECT_EQ(parse_sim_options("").value().host_link.name, "PCIe 4 x16");
  EXPECT_EQ(parse_sim_options("gpu=h100").value().host_link.name, "PCIe 5 x16");
  EXPECT_EQ(parse_sim_options("gpu=GH200").value().host_link.name, "NVLink-C2C");
  EXPECT_EQ(parse_sim_options("gpu=4060ti").value().host_link.name, "PCIe 4 x8");
  EXPECT_EQ(parse_sim_options("link=PCIe 3 x16,gpu=H100").value().host_link.name, "PCIe 3 x16");
  const sim::Options own = parse_sim_options("gpu=custom:100:500:8GiB,link=custom:48").value();
  EXPECT_DOUBLE_EQ(own.gpu.bytes(), 500e9);
  EXPECT_DOUBLE_EQ(own.host_link.bandwidth, 48e9);
}

TEST(SimOptions, SayInOneLineWhatIsWrong) {
  const BadCase cases[] = {
      {"lazy",
       "\"lazy\" is no option; expected late, early, random:SEED, poison=on, poison=off, data=on, data=off, "
       "times=told, times=hidden, truth=random:SEED, host=20us, gpu=NAME, link=NAME or peer=NAME, as in "
       "random:42,gpu=H100"},
      {"late,,",
       "\"\" is no option; expected late, early, random:SEED, poison=on, poison=off, data=on, data=off, "
       "times=told, times=hidden, truth=random:SEED, host=20us, gpu=NAME, link=NAME or peer=NAME, as in "
       "random:42,gpu=H100"},
      {"random:x", "\"random:x\" has no seed from 0 to 18446744073709551615, as in random:42"},
      {"random:", "\"random:\" has no seed from 0 to 18446744073709551615, as in random:42"},
      {"random:-1", "\"random:-1\" has no seed from 0 to 18446744073709551615, as in random:42"},
      {"random:18446744073709551616",
       "\"random:18446744073709551616\" has no seed from 0 to 18446744073709551615, as in random:42"},
      {"poison=yes", "\"poison=yes\": expected poison=on or poison=off"},
      {"times=maybe", "\"times=maybe\": expected times=told or times=hidden"},
      {"host=20", "\"host=20\": expected microseconds from 0 to 1000000, as in host=20us"},
      {"host=-1us", "\"host=-1us\": expected microseconds from 0 to 1000000, as in host=20us"},
      {"host=nanus", "\"host=nanus\": expected microseconds from 0 to 1000000, as in host=20us"},
      {"host=1e7us", "\"host=1e7us\": expected microseconds from 0 to 1000000, as in host=20us"},
      {"truth=maybe", "\"truth=maybe\": expected truth=random:SEED"},
      {"truth=random:x", "\"truth=random:x\" has no seed from 0 to 18446744073709551615, as in random:42"},
      {"data=", "\"data=\": expected data=on or data=off"},
      {"late,early", "\"late\" and \"early\" stand together; leave one out"},
      {"random:1,poison=on,late", "\"random:1\" and \"late\" stand together; leave one out"},
      {"gpu=A100,gpu=H100", "\"gpu=A100\" and \"gpu=H100\" stand together; leave one out"},
      {"data=off,poison=on", "poison=on has nothing to fill beside data=off; leave one of them out"},
      {"card=H100", "\"card=H100\": card is called gpu now"},
      {"gpu=H900", "\"gpu=H900\" is no GPU that is known; the nearest are H200, H100, and B200"},
      {"link=PCIe 5",
       "\"link=PCIe 5\" is no link that is known; the nearest are PCIe 5 x8, PCIe 5 x16, and PCIe 4 x8"},
  };
  for (const auto& [text, message] : cases) {
    const Result<MachineSpec> spec = parse_machine("sim:1MiB", text, kHostMemory);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().message(), "INNKEEPER_SIM: " + std::string(message));
  }
}

TEST(Settings, ThatAreAlmostRightAreNamed) {
  const std::array environment = {"INNKEEPER_NODE=sim:64MiB",
                                  "INKEEPER_SIM=early",
                                  "INNKEEPER_SOFTPLACEMENT=off",
                                  "INNKEEPER_LEASEDIR=/tmp",
                                  "INNKEEPER_NODSE",
                                  "INNKEEPER_nodes=host",
                                  "innkeeper_sim=early",
                                  "INNKEEPER_BUDGET=8GiB",
                                  "INNKEEPER_GPU_MEMORY=8GiB",
                                  static_cast<const char*>(nullptr)};
  EXPECT_EQ(misspelt_settings(environment.data()),
            (std::vector<std::string>{
                "INNKEEPER_NODE is set, and no setting: INNKEEPER_NODES is one",
                "INKEEPER_SIM is set, and no setting: INNKEEPER_SIM is one",
                "INNKEEPER_SOFTPLACEMENT is set, and no setting: INNKEEPER_SOFT_PLACEMENT is one",
                "INNKEEPER_LEASEDIR is set, and no setting: INNKEEPER_LEASE_DIR is one",
                "INNKEEPER_NODSE is set, and no setting: INNKEEPER_NODES is one",
                "INNKEEPER_nodes is set, and no setting: INNKEEPER_NODES is one",
                "innkeeper_sim is set, and no setting: INNKEEPER_SIM is one",
                "INNKEEPER_BUDGET is set, and no setting (docs/settings.md has all)",
                "INNKEEPER_GPU_MEMORY is set, and no setting (docs/settings.md has all)",
            }));
}

TEST(Settings, OtherVariablesAreNoMistakes) {
  const std::string long_name(100000, 'I');
  const std::array environment = {"INNKEEPER_NODES=",
                                  "INNKEEPER_STEPS=3",
                                  "INNKEEPER_LEASE=ab12",
                                  "INNKEEPER_LEASE_FD=3",
                                  "INNKEEPER_JOB_ID=1",
                                  "INNKEEPER_JOB_NAME=budget",
                                  "INNKEEPER_ARRAY_INDEX=0",
                                  "INNKEEPER_",
                                  "INNKEEPER",
                                  "PATH=/INNKEEPER_NODE",
                                  long_name.c_str(),
                                  "",
                                  static_cast<const char*>(nullptr)};
  EXPECT_EQ(misspelt_settings(environment.data()), std::vector<std::string>());
}

TEST(Machine, WithoutDataMayBeLargerThanThisOne) {
  const MachineSpec spec = parse_machine("sim:8x80GiB,host:2TiB", "data=off", kHostMemory).value();
  EXPECT_FALSE(spec.data);
  EXPECT_EQ(spec.nodes.size(), 9u);
  for (const NodeSpec& node : spec.nodes) {
    if (node.simulated) {
      EXPECT_FALSE(node.sim.data || node.sim.poison) << node.name;
    }
  }
  EXPECT_EQ(*parse_machine("sim:1x80GiB", "data=off", kHostMemory).value().nodes[1].budget,
            *parse_machine("host", "", kHostMemory).value().nodes[0].budget);
  EXPECT_TRUE(parse_machine("sim:1GiB", "data=on", kHostMemory).value().data);
}

TEST(Machine, ProcessesOfOneMachineShareIt) {
  const LocalShare half{.rank = 1, .count = 2};
  EXPECT_EQ(summary(parse_machine("auto", "", kHostMemory, half).value()), "auto host=6.4 GiB");
  EXPECT_EQ(summary(parse_machine("sim:1GiB", "", kHostMemory, half).value()), "sim:0=1.0 GiB host=5.6 GiB");
  EXPECT_EQ(summary(parse_machine("host:16GiB", "", kHostMemory, half).value()), "host=16.0 GiB");
}

TEST(Machine, AListKeepsSimulatedNodesAsCudaKeepsGpus) {
  const char* nodes = "sim:3x1MiB,host:1GiB";
  const std::pair<const char*, const char*> cases[] = {
      {"1", "sim:1=1.0 MiB host=1.0 GiB"},
      {" 2, 0 ", "sim:2=1.0 MiB sim:0=1.0 MiB host=1.0 GiB"},
      {"1,7,0", "sim:1=1.0 MiB host=1.0 GiB"},
      {"0,-1", "sim:0=1.0 MiB host=1.0 GiB"},
      {"2,GPU-1", "sim:2=1.0 MiB host=1.0 GiB"},
      {"GPU-51300000-0000-4000-8000-000000000002,0", "sim:2=1.0 MiB sim:0=1.0 MiB host=1.0 GiB"},
  };
  for (const auto& [list, expected] : cases) {
    MachineSpec spec = parse_machine(nodes, "", kHostMemory).value();
    keep_listed(spec, list);
    EXPECT_EQ(summary(spec), expected) << list;
    EXPECT_EQ(spec.nodes[0].index, 0) << list;
    EXPECT_EQ(spec.nodes[0].sim.name, spec.nodes[0].name);
  }
  for (const char* none :
       {"", ",", "7", "99999999999", "GPU-1", "-1", "1,1", "2,0,2",
        "GPU-51300000-0000-4000-8000-000000000003", "GPU-51300000-0000-4000-8000-00000000000"}) {
    MachineSpec spec = parse_machine(nodes, "", kHostMemory).value();
    keep_listed(spec, none);
    EXPECT_EQ(summary(spec), "host=1.0 GiB") << none;
  }
  MachineSpec spec = parse_machine("cuda:1,cuda:0,host:1GiB", "", kHostMemory).value();
  keep_listed(spec, "0");
  EXPECT_EQ(summary(spec), "cuda:1=- cuda:0=- host=1.0 GiB") << "the driver has kept to it";
}

TEST(Machine, SimulatedGpusHaveUuidsOfTheirOwn) {
  for (const int index : {0, 1, 15, 255}) EXPECT_EQ(simulated_index(simulated_uuid(index)), index);
  EXPECT_NE(simulated_uuid(1), simulated_uuid(16));
  for (const char* other :
       {"", "GPU-", "0", "GPU-51300000-0000-4000-8000-00000000000g",
        "GPU-51300000-0000-4000-8000-fffffffffffff", "GPU-51300000-0000-4000-8000-00000000001F"})
    EXPECT_EQ(simulated_index(other), std::nullopt) << other;
}

// The budgets of a machine with one integrated GPU, by node.
std::vector<int64_t> parted(const char* nodes, Bytes free, Bytes memory, std::string* why = nullptr) {
  MachineSpec spec = parse_machine(nodes, "", GiB(100)).value();
  for (NodeSpec& node : spec.nodes) node.integrated = node.accelerator == "cuda";
  const Status status = part_one_memory(spec, free, memory);
  if (why != nullptr) *why = std::string(status.message());
  if (!status.ok()) return {};
  std::vector<int64_t> budgets;
  for (const NodeSpec& node : spec.nodes) budgets.push_back(node.budget.value_or(Bytes(0)).count());
  return budgets;
}

TEST(Machine, AnIntegratedGpuAndTheHostPartOneMemory) {
  using Budgets = std::vector<int64_t>;
  EXPECT_EQ(parted("cuda:0,host", GiB(80), GiB(100)), (Budgets{GiB(60).count(), GiB(5).count()}));
  EXPECT_EQ(parted("cuda:0,host:30GiB", GiB(80), GiB(100)), (Budgets{GiB(40).count(), GiB(30).count()}));
  EXPECT_EQ(parted("cuda:0:90GiB,host", GiB(80), GiB(100)), (Budgets{GiB(90).count(), GiB(5).count()}));
  EXPECT_EQ(parted("cuda:0,cuda:1,host", GiB(80), GiB(100)),
            (Budgets{GiB(30).count(), GiB(30).count(), GiB(5).count()}));
  EXPECT_EQ(parted("cuda:0:98GiB", GiB(100), GiB(100)), (Budgets{GiB(98).count(), GiB(2).count()}));
  std::string why;
  EXPECT_TRUE(parted("cuda:0,host:90GiB", GiB(80), GiB(100), &why).empty());
  EXPECT_EQ(
      why,
      "INNKEEPER_NODES: cuda:0 shares the host's memory, of which 80.0 GiB are free and host's 90.0 GiB are "
      "named: too little is left for it");
  EXPECT_TRUE(parted("cuda:0:60GiB,host:50GiB", GiB(80), GiB(100), &why).empty());
  EXPECT_EQ(
      why,
      "INNKEEPER_NODES: cuda:0's 60.0 GiB and host's 50.0 GiB are of one memory, since the GPU shares the "
      "host's, and it has 100.0 GiB; name less");
}

TEST(Machine, GpusArePartedAmongProcesses) {
  using Gpus = std::vector<int>;
  EXPECT_EQ(LocalShare().gpus(3), (Gpus{0, 1, 2}));
  EXPECT_EQ((LocalShare{1, 2}.gpus(4)), (Gpus{2, 3}));
  EXPECT_EQ((LocalShare{1, 2}.gpus(5)), (Gpus{2, 3})) << "as many for each";
  EXPECT_EQ((LocalShare{2, 3}.gpus(2)), Gpus{0});
  EXPECT_EQ((LocalShare{2, 3}.sharers(2)), 2);
  EXPECT_EQ((LocalShare{1, 3}.sharers(2)), 1);
  EXPECT_EQ((LocalShare{1, 2}.sharers(4)), 1);
  EXPECT_EQ((LocalShare{1, 2}.gpus(0)), Gpus{});
  for (int visible = 1; visible < 12; ++visible) {
    for (int count = 1; count < 12; ++count) {
      std::vector<int> owners(static_cast<size_t>(visible));
      for (int rank = 0; rank < count; ++rank) {
        for (const int gpu : LocalShare{rank, count}.gpus(visible)) ++owners.at(static_cast<size_t>(gpu));
      }
      for (int rank = 0; rank < count; ++rank) {
        const LocalShare share{rank, count};
        for (const int gpu : share.gpus(visible))
          EXPECT_EQ(owners[static_cast<size_t>(gpu)], share.sharers(visible)) << visible << " " << count;
      }
    }
  }
}

TEST(Machine, TheShareComesFromTorchrunsVariables) {
  const auto share = [](const char* rank, const char* count) {
    test::Environment environment;
    environment.set("LOCAL_RANK", rank);
    environment.set("LOCAL_WORLD_SIZE", count);
    const LocalShare read = local_share_from_environment();
    return std::pair(read.rank, read.count);
  };
  EXPECT_EQ(share("1", "4"), std::pair(1, 4));
  for (const auto& [rank, count] : {std::pair("4", "4"), {"-1", "2"}, {"x", "0"}, {"0", "0"}, {"1", ""}})
    EXPECT_EQ(share(rank, count), std::pair(0, 1)) << rank << " of " << count;
  EXPECT_EQ(local_share_from_environment().count, 1);
}

}  // namespace
}  // namespace innkeeper
