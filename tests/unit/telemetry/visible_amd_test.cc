// ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES in each of their forms, against machines made by hand.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "support/environment.h"
#include "telemetry/visible.h"

namespace innkeeper::telemetry {
namespace {

Gpu amd_gpu(const std::string& uuid, const std::string& bus, Vendor vendor = Vendor::amd) {
  Gpu made;
  made.uuid = uuid;
  made.bus_id = "00000000:" + bus + ":00.0";
  made.name = "GPU";
  made.vendor = vendor;
  return made;
}

Snapshot four_of_amd() {
  Snapshot now;
  now.gpus = {amd_gpu("GPU-aa11000000000000", "01"), amd_gpu("GPU-aa22000000000001", "02"),
              amd_gpu("GPU-bb33000000000002", "03"), amd_gpu("GPU-cc44000000000003", "04")};
  return now;
}

// The GPUs' last characters; "!" before them if restricted.
std::string endings(const Visible& visible) {
  std::string text;
  for (const std::string& uuid : visible.uuids)
    text += (text.empty() ? "" : " ") + uuid.substr(uuid.size() - 1);
  return (visible.restricted ? "!" : "") + text;
}
std::string rocr(const char* list) { return endings(resolve_visible_amd({list, {}, {}}, four_of_amd())); }
std::string hip(const char* list) { return endings(resolve_visible_amd({{}, list, {}}, four_of_amd())); }

TEST(VisibleAmd, ReadsRocrsList) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "!0"},
      {"2,0", "!2 0"},
      {" 1 ,\t3 ", "!1 3"},
      {"", "!"},
      {"-1", "!"},
      {"0,4,1", "!0"},
      {"0,,1", "!0"},
      {"0,", "!0"},
      {"1gpu", "!"},
      {"0x1,010", "!1"},
      {"0,0,1", "!0"},
      {"0,GPU-bb33,1", "!0 2 1"},
      {"GPU-aa", "!"},
      {"GPU-aa1", "!0"},
      {"gpu-BB33", "!2"},
      {"GPU-", "!"},
      {"GPU-c,0", "!3 0"},
      {"GPU-cc44000000000003", "!3"},
      {"GPU-cc440000000000031", "!"},
      {"0,1,2,3,0", "!0 1 2 3"},
      {"GPU-dd,0", "!"},
      {"99999999999999999999", "!"},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(rocr(list), expected) << "\"" << list << "\"";
  EXPECT_EQ(endings(resolve_visible_amd({}, four_of_amd())), "0 1 2 3");
  EXPECT_EQ(resolve_visible_amd({"0,0", {}, {}}, four_of_amd()).note,
            "ROCR_VISIBLE_DEVICES: \"0\" stands there twice; it and what follows do not count");
  // ROCR stops before the bad entry.
  EXPECT_EQ(resolve_visible_amd({"0,1,2,3,x", {}, {}}, four_of_amd()).note, "");
}

TEST(VisibleAmd, ReadsHipsList) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "!0"},       {"2,0", "!2 0"},
      {"", "!"},         {" 1", "!"},
      {"01", "!"},       {"-1", "!"},
      {"0,4,1", "!0"},   {"0,,1", "!0"},
      {"0,", "!0"},      {"1gpu", "!"},
      {"0,0,1", "!0 1"}, {"GPU-aa,2", "!0 2"},
      {"GPU-BB", "!"},   {"GPU-bb33,1", "!2 1"},
      {"GPU-dd,0", "!"},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(hip(list), expected) << "\"" << list << "\"";
}

TEST(VisibleAmd, HipCountsAmongWhatRocrLeft) {
  EXPECT_EQ(endings(resolve_visible_amd({"3,1", "1", {}}, four_of_amd())), "!1");
  EXPECT_EQ(endings(resolve_visible_amd({"3,1", "2", {}}, four_of_amd())), "!");
  EXPECT_EQ(endings(resolve_visible_amd({"3,1", "GPU-cc", {}}, four_of_amd())), "!3");
  EXPECT_EQ(endings(resolve_visible_amd({"3,1", "GPU-aa11", {}}, four_of_amd())), "!");
  EXPECT_EQ(endings(resolve_visible_amd({"3,1", {}, "0"}, four_of_amd())), "!3");
  EXPECT_EQ(endings(resolve_visible_amd({"3,1", "1", "0"}, four_of_amd())), "!1");
}

TEST(VisibleAmd, IndicesCountTheKernelsNodes) {
  Snapshot now = four_of_amd();
  for (size_t i = 0; i < 4; ++i) now.gpus[i].kfd_node = static_cast<int>(10 - i);
  EXPECT_EQ(endings(resolve_visible_amd({"0,1", {}, {}}, now)), "!3 2");
  now.gpus[2].kfd_node = -1;  // One GPU has no node: the order is by bus id.
  EXPECT_EQ(endings(resolve_visible_amd({"0,1", {}, {}}, now)), "!0 1");
}

TEST(VisibleAmd, ALostGpuKeepsItsIndex) {
  Snapshot now = four_of_amd();
  now.gpus.erase(now.gpus.begin() + 1);
  LostGpu lost;
  lost.vendor = Vendor::amd;
  lost.driver_index = 1;
  lost.bus_id = "00000000:02:00.0";
  now.lost = {lost};
  const Visible visible = resolve_visible_amd({"2,1,0", {}, {}}, now);
  EXPECT_EQ(endings(visible), "!2 0");
  EXPECT_FALSE(visible.ordered);
  EXPECT_EQ(visible.note, "a GPU that was given is lost");
  now.lost[0].vendor = Vendor::nvidia;
  EXPECT_EQ(endings(resolve_visible_amd({"2,1,0", {}, {}}, now)), "!3 2 0");
}

TEST(VisibleAmd, EachVendorsListLeavesTheOthersGpusAlone) {
  Snapshot now = four_of_amd();
  now.gpus[0] = amd_gpu("GPU-aa11-0", "01", Vendor::nvidia);
  now.gpus[1] = amd_gpu("GPU-aa22-1", "02", Vendor::nvidia);
  EXPECT_EQ(endings(resolve_visible("1", "", now)), "!1");
  EXPECT_EQ(endings(resolve_visible("2", "", now)), "!");
  EXPECT_EQ(endings(resolve_visible("GPU-bb", "", now)), "!");
  EXPECT_EQ(endings(resolve_visible(std::nullopt, "", now)), "0 1");
  EXPECT_EQ(endings(resolve_visible_amd({"1", {}, {}}, now)), "!3");

  test::Environment environment;
  environment.set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_EQ(endings(visible_from_environment(now)), "!1 2 3");
  environment.set("ROCR_VISIBLE_DEVICES", "1,x");
  EXPECT_EQ(endings(visible_from_environment(now)), "!1 3");
  EXPECT_NE(visible_from_environment(now).note.find("ROCR_VISIBLE_DEVICES: \"x\""), std::string::npos);
  environment.set("HIP_VISIBLE_DEVICES", "");
  EXPECT_EQ(endings(visible_from_environment(now)), "!1");
  environment.remove("HIP_VISIBLE_DEVICES");
  environment.remove("ROCR_VISIBLE_DEVICES");
  // Where all GPUs are AMD's, HIP reads CUDA's list.
  EXPECT_EQ(endings(visible_from_environment(four_of_amd())), "!1");
  environment.set("HIP_VISIBLE_DEVICES", "2");
  EXPECT_EQ(endings(visible_from_environment(four_of_amd())), "!2");
  environment.remove("HIP_VISIBLE_DEVICES");
  environment.remove("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(endings(visible_from_environment(four_of_amd())), "0 1 2 3");
}

}  // namespace
}  // namespace innkeeper::telemetry
