// Measured rates: their effect on a model, and their storage.
#include "cost/measured.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cost/kept_rates.h"

namespace innkeeper::cost {
namespace {

namespace fs = std::filesystem;

TEST(Measured, RatesReplaceTheModels) {
  const GpuModel model = gpu_named("H100").value();
  const GpuModel found = with_measured(model, {.precision = Precision::bf16, .flops = 5e14, .bytes = 2e12});
  EXPECT_DOUBLE_EQ(found.flops(Precision::bf16), 5e14);
  EXPECT_DOUBLE_EQ(found.bytes(), 2e12);
  EXPECT_NEAR(found.flops(Precision::fp32) / model.flops(Precision::fp32),
              5e14 / model.flops(Precision::bf16), 1e-12)
      << "other precisions reach the same part";
}

TEST(Measured, WhatWasNotMeasuredStays) {
  const GpuModel model = gpu_named("L4").value();
  const GpuModel found = with_measured(model, {});
  EXPECT_EQ(found.flops(Precision::fp16), model.flops(Precision::fp16));
  EXPECT_EQ(found.bytes(), model.bytes());
  EXPECT_EQ(link_rate({}, 7e9), 7e9);
  EXPECT_EQ(link_rate({.in = 5e9}, 7e9), 5e9);
  EXPECT_EQ(link_rate({.in = 5e9, .out = 4e9}, 7e9), 4e9) << "the slower direction";
}

class KeptRatesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/rates.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
    directory_ = (top_ / "cache" / "gpus").string();
  }
  void TearDown() override { fs::remove_all(top_); }

  static KeptRates some() {
    return {.uuid = "GPU-12345678-abcd",
            .name = "A GPU",
            .driver = "13000",
            .pytorch = "2.11.0",
            .link = 63e9,
            .time = 1'700'000'000,
            .measured = {Precision::fp16, 6e14, 3e12, 5.5e10, 5.1e10}};
  }
  void write(const std::string& uuid, const std::string& text) const {
    fs::create_directories(directory_);
    std::ofstream(fs::path(directory_) / (uuid + ".rates")) << text;
  }

  fs::path top_;
  std::string directory_;
};

TEST_F(KeptRatesTest, AreReadBackAsTheyWere) {
  ASSERT_TRUE(keep_rates(directory_, some()).ok());
  const KeptRates found = kept_rates(directory_, some().uuid).value();
  EXPECT_EQ(found.name, "A GPU");
  EXPECT_EQ(found.time, 1'700'000'000);
  EXPECT_EQ(found.measured.precision, Precision::fp16);
  EXPECT_EQ(found.measured.flops, 6e14);
  EXPECT_EQ(found.measured.bytes, 3e12);
  EXPECT_EQ(found.measured.in, 5.5e10);
  EXPECT_EQ(found.measured.out, 5.1e10);
  EXPECT_TRUE(found.holds_for(some()));
  EXPECT_EQ(all_kept_rates(directory_).size(), 1u);
}

TEST_F(KeptRatesTest, HoldForTheSameMachineAlone) {
  const std::function<void(KeptRates&)> changes[] = {
      [](KeptRates& rates) { rates.uuid = "GPU-2"; },
      [](KeptRates& rates) { rates.driver = "13010"; },
      [](KeptRates& rates) { rates.pytorch = "2.12"; },
      [](KeptRates& rates) { rates.link = 31e9; },
      [](KeptRates& rates) { rates.shared = true; },
      [](KeptRates& rates) { rates.slowed = true; },
      [](KeptRates& rates) { rates.name = "A GPU MIG 1g.10gb"; }};
  for (const auto& change : changes) {
    KeptRates kept = some();
    change(kept);
    EXPECT_FALSE(kept.holds_for(some()));
  }
}

TEST_F(KeptRatesTest, OfDamagedFilesThereAreNone) {
  ASSERT_TRUE(keep_rates(directory_, some()).ok());
  std::ifstream file(fs::path(directory_) / (some().uuid + ".rates"));
  const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string damaged[] = {"",
                                 ": ",
                                 whole.substr(0, whole.size() / 2),
                                 with("version: 1", "version: 2"),
                                 with("uuid: GPU-12345678-abcd", "uuid: GPU-87654321-abcd"),
                                 with("precision: fp16", "precision: fp17"),
                                 with("flops: 6e+14", "flops: -1"),
                                 with("flops: 6e+14", "flops: 1e300"),
                                 with("flops: 6e+14", "flops: nan"),
                                 with("flops: 6e+14", "flops: 6e+14 or so"),
                                 with("flops: 6e+14\n", ""),
                                 with("shared: no", "shared: 3"),
                                 with("time: 1700000000", "time: now"),
                                 std::string(1 << 20, ' ') + whole};
  for (const std::string& text : damaged) {
    write(some().uuid, text);
    EXPECT_FALSE(kept_rates(directory_, some().uuid).has_value()) << text.substr(0, 200);
  }
  write(some().uuid, whole);
  EXPECT_TRUE(kept_rates(directory_, some().uuid).has_value());
}

TEST_F(KeptRatesTest, ANameCannotLeadElsewhere) {
  KeptRates rates = some();
  for (const std::string& uuid : {std::string("../../elsewhere"), std::string("a/b"), std::string(""),
                                  std::string("."), std::string(500, 'a')}) {
    rates.uuid = uuid;
    EXPECT_EQ(keep_rates(directory_, rates).code(), Code::invalid_argument) << uuid;
    EXPECT_FALSE(kept_rates(directory_, uuid).has_value());
  }
}

TEST_F(KeptRatesTest, SayWhyTheyCannotBeKept) {
  EXPECT_EQ(keep_rates("", some()).code(), Code::unavailable);
  std::ofstream(top_ / "file") << "no directory";
  const Status kept = keep_rates((top_ / "file").string(), some());
  EXPECT_EQ(kept.code(), Code::unavailable);
  EXPECT_NE(kept.message().find((top_ / "file").string()), std::string::npos) << kept.message();
}

// A driver's name need not be text.
TEST_F(KeptRatesTest, AreKeptWhateverTheDriverSays) {
  KeptRates rates = some();
  rates.name = "GPU \xff\xfe\"\n";
  ASSERT_TRUE(keep_rates(directory_, rates).ok());
  EXPECT_TRUE(kept_rates(directory_, rates.uuid).has_value());
}

TEST_F(KeptRatesTest, AreClearedButNothingElse) {
  KeptRates rates = some();
  ASSERT_TRUE(keep_rates(directory_, rates).ok());
  rates.uuid = "GPU-2";
  ASSERT_TRUE(keep_rates(directory_, rates).ok());
  std::ofstream(fs::path(directory_) / "notes.txt") << "mine";
  std::ofstream(fs::path(directory_) / "GPU-2.rates.a1b2c3.new") << "a killed writer's";
  fs::create_directory(fs::path(directory_) / "GPU-3.rates");
  EXPECT_EQ(clear_kept_rates(directory_).value(), 2);
  EXPECT_EQ(clear_kept_rates(directory_).value(), 0);
  EXPECT_FALSE(fs::exists(fs::path(directory_) / "GPU-2.rates.a1b2c3.new"));
  EXPECT_TRUE(fs::exists(fs::path(directory_) / "GPU-3.rates")) << "a directory is none of ours";
  EXPECT_TRUE(fs::exists(fs::path(directory_) / "notes.txt"));
  EXPECT_TRUE(all_kept_rates(directory_).empty());
  EXPECT_EQ(clear_kept_rates((top_ / "nothing").string()).value(), 0);
  EXPECT_EQ(clear_kept_rates("").value(), 0);
}

TEST_F(KeptRatesTest, WhatCannotBeClearedIsSaid) {
  ASSERT_TRUE(keep_rates(directory_, some()).ok());
  const fs::path elsewhere = top_ / "file";
  std::ofstream(elsewhere) << "no directory";
  EXPECT_FALSE(clear_kept_rates(elsewhere.string()).ok());
}

// Threads of a process share its number, as processes of several containers may.
TEST_F(KeptRatesTest, WritersOfOneNumberSpoilNothing) {
  ASSERT_TRUE(keep_rates(directory_, some()).ok());
  std::atomic<int> failed = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        if (!keep_rates(directory_, some()).ok() || !kept_rates(directory_, some().uuid)) ++failed;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failed, 0);
}

TEST_F(KeptRatesTest, LeaveNoDraftBehind) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(keep_rates(directory_, some()).ok());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(directory_)) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace innkeeper::cost
