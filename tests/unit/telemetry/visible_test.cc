// CUDA_VISIBLE_DEVICES in each of its forms, against machines made by hand.
#include "telemetry/visible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "support/environment.h"
#include "support/gpus.h"

namespace innkeeper::telemetry {
namespace {

using test::gpu;
using test::instance;

// Four alike.
Snapshot four() {
  Snapshot now;
  now.gpus = {gpu("GPU-aa11-0", "01"), gpu("GPU-aa22-1", "02"), gpu("GPU-bb33-2", "03"),
              gpu("GPU-cc44-3", "04")};
  return now;
}

// Two GPUs, the first in MIG mode.
Snapshot mig() {
  Snapshot now;
  now.gpus = {gpu("GPU-aa11-0", "01",
                  {instance("MIG-5555", 1, 0), instance("MIG-6666", 2, 0), instance("MIG-6777", 2, 1)}),
              gpu("GPU-bb22-1", "02")};
  return now;
}

// "0 2" for the GPUs' or instances' own endings, "!" before it if restricted, "?" if unclear, "~" if not
// ordered.
std::string shown(const Visible& visible) {
  std::string text = visible.restricted ? "!" : "";
  if (visible.unclear) text += "?";
  if (!visible.ordered) text += "~";
  for (const std::string& uuid : visible.uuids)
    text += uuid.substr(uuid.size() - (uuid[0] == 'M' ? 4 : 1)) + " ";
  if (!visible.uuids.empty()) text.pop_back();
  return text;
}

struct ListCase {
  const char* list;
  const char* expected;
};

TEST(Visible, ReadsIndicesAsCudaDoes) {
  const ListCase cases[] = {
      {"0", "!0"},
      {"2,0", "!2 0"},
      {" 1 ,\t3 ", "!1 3"},
      {"", "!"},
      {"   ", "!"},
      {"-1", "!"},
      {"0,2,-1,1", "!0 2"},
      {"0,2,4,1", "!0 2"},
      {"0,,1", "!0"},
      {"0,", "!0"},
      {",0", "!"},
      {"1gpu2", "!1"},
      {"1 2,3", "!1 3"},
      {"0-3", "!0"},
      {"+1", "!1"},
      {"none", "!"},
      {"NoDevFiles", "!"},
      {"all", "!"},
      {"0,1,0", "!"},
      {"0,x,0", "!0"},
      {"00,1", "!0 1"},
      {"99999999999999999999999", "!"},
      {"0,18446744073709551616", "!0"},
      {"0,GPU-aa22-1", "!0"},
  };
  for (const auto& [list, expected] : cases)
    EXPECT_EQ(shown(resolve_visible(list, "", four())), expected) << list;
}

TEST(Visible, ReadsUuids) {
  const ListCase cases[] = {
      {"GPU-aa22-1", "!1"},
      {"GPU-bb", "!2"},
      {"GPU-c,GPU-aa1", "!3 0"},
      {" GPU-c , GPU-b ", "!3 2"},
      {"GPU-aa", "!"},  // The prefix fits two GPUs.
      {"GPU-c,GPU-aa,GPU-b", "!3"},
      {"GPU-", "!"},
      {"GPU", "!"},
      {"gpu-c", "!"},
      {"GPU-C", "!"},
      {"GPU-cc44-3x", "!"},
      {"GPU-c,1", "!3"},
      {"GPU-c,GPU-cc44", "!"},  // The same device twice.
      {"GPU-c,GPU-zz,GPU-c", "!3"},
      {"MIG-5555", "!"},
  };
  for (const auto& [list, expected] : cases) {
    EXPECT_EQ(shown(resolve_visible(list, "", four())), expected) << list;
    EXPECT_EQ(shown(resolve_visible(list, "PCI_BUS_ID", four())), expected) << list;
  }
}

// A whole name means its device, even if another name begins with it.
TEST(Visible, AWholeNameIsThatDevice) {
  Snapshot alike;
  alike.gpus = {gpu("GPU-aa11", "01"), gpu("GPU-aa11-0", "02")};
  EXPECT_EQ(resolve_visible("GPU-aa11", "", alike).uuids, std::vector<std::string>{"GPU-aa11"});
  alike.gpus[0].mig = true;
  alike.gpus[0].instances = {instance("MIG-7", 1, 0), instance("MIG-77", 2, 0)};
  EXPECT_EQ(resolve_visible("MIG-77,MIG-7", "", alike).uuids, (std::vector<std::string>{"MIG-77", "MIG-7"}));
}

TEST(Visible, ReadsMigInstances) {
  const ListCase cases[] = {
      {"MIG-5555", "!5555"},
      {"MIG-6777,MIG-5", "!6777 5555"},
      {"MIG-6", "!"},
      {"MIG-GPU-aa11-0/2/1", "!6777"},
      {"MIG-GPU-aa11-0/2/0,MIG-GPU-aa11-0/1/0", "!6666 5555"},
      {"MIG-GPU-aa11-0/3/0", "!"},
      {"MIG-GPU-aa11-0/2", "!"},
      {"MIG-GPU-aa11-0/2/0/0", "!"},
      {"MIG-GPU-aa11-0/2/", "!"},
      {"MIG-GPU-aa11-0/-1/0", "!"},
      {"MIG-GPU-aa11/2/0", "!"},
      {"MIG-GPU-bb22-1/2/0", "!"},
      {"GPU-aa", "!5555"},  // the GPU itself cannot be used: its first instance
      {"GPU-bb,MIG-5555", "!1 5555"},
      {"GPU-aa,MIG-5555", "!"},  // The same device twice.
  };
  for (const auto& [list, expected] : cases)
    EXPECT_EQ(shown(resolve_visible(list, "", mig())), expected) << list;
  EXPECT_EQ(shown(resolve_visible("1,0", "PCI_BUS_ID", mig())), "!1 5555");
  Snapshot bare = mig();
  bare.gpus[0].instances.clear();
  EXPECT_EQ(shown(resolve_visible("0,1", "PCI_BUS_ID", bare)), "!");
  // Older drivers name instances by their place: the text itself is the UUID then.
  Snapshot older = mig();
  older.gpus[0].instances = {instance("MIG-GPU-aa11-0/2/0", 2, 0)};
  EXPECT_EQ(resolve_visible("MIG-GPU-aa11-0/2/0", "", older).uuids.at(0), "MIG-GPU-aa11-0/2/0");
}

TEST(Visible, NotSetIsEverything) {
  EXPECT_EQ(shown(resolve_visible(std::nullopt, "", four())), "0 1 2 3");
  EXPECT_EQ(shown(resolve_visible(std::nullopt, "PCI_BUS_ID", mig())), "~5555 6666 6777 1");
  EXPECT_EQ(shown(resolve_visible(std::nullopt, "", Snapshot())), "");
}

TEST(Visible, AnIndexOfSeveralModelsNeedsTheOrder) {
  Snapshot mixed = four();
  mixed.gpus[2].name = "NVIDIA T4";
  const Visible unclear = resolve_visible("0,1", "", mixed);
  EXPECT_EQ(shown(unclear), "!?");
  EXPECT_NE(unclear.note.find("CUDA_DEVICE_ORDER=PCI_BUS_ID"), std::string::npos);
  EXPECT_EQ(shown(resolve_visible("0,1", "FASTEST_FIRST", mixed)), "!?");
  EXPECT_EQ(shown(resolve_visible("0,1", "PCI_BUS_ID", mixed)), "!0 1");
  EXPECT_EQ(shown(resolve_visible("GPU-aa1,GPU-bb", "", mixed)), "!0 2");
  EXPECT_EQ(shown(resolve_visible("", "", mixed)), "!");
  EXPECT_EQ(shown(resolve_visible("-1", "", mixed)), "!");
  EXPECT_EQ(shown(resolve_visible(std::nullopt, "", mixed)), "~0 1 2 3");
}

TEST(Visible, ALostGpuKeepsItsIndex) {
  Snapshot now = four();
  now.gpus.erase(now.gpus.begin() + 1);
  LostGpu lost;
  lost.driver_index = 1;
  lost.bus_id = "00000000:02:00.0";
  for (const bool place_known : {true, false}) {
    if (!place_known) lost.bus_id.clear();
    now.lost = {lost};
    EXPECT_EQ(shown(resolve_visible("0", "", now)), "!0");
    EXPECT_EQ(shown(resolve_visible("2,1,3", "", now)), "!~2 3");
    EXPECT_EQ(shown(resolve_visible("1", "", now)), "!~");
  }
  // CUDA does not count a GPU that this process may not open.
  now.lost[0].forbidden = true;
  EXPECT_EQ(shown(resolve_visible("1", "", now)), "!2");
}

TEST(Visible, SaysWhyEntriesDoNotCount) {
  EXPECT_EQ(resolve_visible("0,1", "", four()).note, "");
  EXPECT_EQ(
      resolve_visible("0,7", "", four()).note,
      "CUDA_VISIBLE_DEVICES: \"7\" is beyond the 4 GPUs that are here; it and what follows do not count");
  EXPECT_EQ(resolve_visible("0,0", "", four()).note,
            "CUDA_VISIBLE_DEVICES: \"0\" stands there twice, so CUDA sees no GPU at all");
  EXPECT_EQ(resolve_visible("GPU-aa", "", four()).note,
            "CUDA_VISIBLE_DEVICES: \"GPU-aa\" is the beginning of 2 UUIDs; it and what follows do not count");
  EXPECT_EQ(resolve_visible("\n\x1b", "", four()).note,
            "CUDA_VISIBLE_DEVICES: \"\\x1b\" is no index; it and what follows do not count");
}

TEST(Visible, ReadsTheEnvironment) {
  test::Environment environment;
  environment.set("CUDA_VISIBLE_DEVICES", "GPU-b");
  EXPECT_EQ(shown(visible_from_environment(four())), "!2");
  environment.set("CUDA_VISIBLE_DEVICES", "");
  EXPECT_EQ(shown(visible_from_environment(four())), "!");
  Snapshot mixed = four();
  mixed.gpus[2].name = "NVIDIA T4";
  environment.set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_EQ(shown(visible_from_environment(mixed)), "!?");
  environment.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_EQ(shown(visible_from_environment(mixed)), "!1");
  environment.remove("CUDA_VISIBLE_DEVICES");
  environment.remove("CUDA_DEVICE_ORDER");
  EXPECT_EQ(shown(visible_from_environment(four())), "0 1 2 3");
}

// For any text no device is visible twice or absent from the machine, and its own prefix gives it too.
TEST(Visible, AnyTextIsSafe) {
  const char* const pieces[] = {"0",    "1",    "3",    "9",
                                ",",    ",",    ",",    " ",
                                "-",    "GPU-", "MIG-", "aa11-0",
                                "bb",   "/",    "x",    "MIG-GPU-aa11-0/2/0",
                                "\xff", "5555", "+",    "18446744073709551615",
                                "\t"};
  std::mt19937_64 random(test::from_environment("INNKEEPER_SEED", 1));
  const Snapshot machines[] = {four(), mig(), Snapshot()};
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (uint64_t n = random() % 12; n > 0; --n) text += pieces[random() % std::size(pieces)];
    const Snapshot& now = machines[random() % 3];
    const Visible visible = resolve_visible(text, random() % 2 == 0 ? "" : "PCI_BUS_ID", now);
    ASSERT_TRUE(visible.restricted) << text;
    std::set<std::string> seen;
    for (const std::string& uuid : visible.uuids) {
      ASSERT_TRUE(seen.insert(uuid).second) << text;
      const Gpu* owner = now.find(uuid);
      ASSERT_NE(owner, nullptr) << text;
      ASSERT_EQ(owner->mig, uuid[0] == 'M') << text;
    }
    const auto entries = static_cast<size_t>(std::count(text.begin(), text.end(), ',')) + 1;
    ASSERT_LE(visible.uuids.size(), entries) << text;
    ASSERT_TRUE(visible.uuids.size() == entries || !visible.note.empty() || text.empty() ||
                text.find_first_not_of(" \t") == std::string::npos)
        << text;
    ASSERT_EQ(visible.note.find_first_of("\t\n\xff"), std::string::npos);
  }
}

}  // namespace
}  // namespace innkeeper::telemetry
