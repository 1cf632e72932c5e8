// Machines that differ from the model, and plans whose kernel times are the model's.
#include "replay/truth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "replay/comparison.h"
#include "support/parsed_record.h"

namespace innkeeper::replay {
namespace {

using cost::Truth;
using test::parsed;
using trace::AccessRecord;

constexpr int64_t kWeight = 1 << 20;

// Twelve weights read in a fixed order, by kernels of three kinds that take different times.
std::string unlike_kernels(int steps) {
  const char* const kinds[] = {"mm =60000000000,3000000,1", "add =0,2000000,1", "norm =0,9000000,2"};
  std::string text;
  for (int step = 0; step < steps; ++step) {
    for (int weight = 1; weight <= 12; ++weight) {
      const std::string block = " " + std::to_string(weight) + ":" + std::to_string(kWeight);
      if (step == 0) text += "O make" + block + "o\n";
      text += "O " + std::string(kinds[weight % 3]) + block + (weight % 4 == 0 ? "w" : "r") + "\n";
    }
    text += "M step\n";
  }
  return text;
}

TEST(Truth, EachKindOfKernelHasOneFactorFromHalfToTwice) {
  const AccessRecord model = parsed(unlike_kernels(3));
  std::map<std::string, double> factors;
  double least = 2, most = 0.5;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const AccessRecord truth = with_true_kernels(model, Truth(seed));
    ASSERT_EQ(truth.entries.size(), model.entries.size());
    factors.clear();
    for (size_t i = 0; i < model.entries.size(); ++i) {
      const trace::RecordEntry& entry = model.entries[i];
      if (entry.kind != trace::RecordEntry::Kind::operation) continue;
      const trace::Work expected = work_of(model, entry), found = truth.entries[i].work;
      const double factor = found.bytes / expected.bytes;
      EXPECT_NEAR(found.flops, expected.flops * factor, 1e-6 * expected.flops);
      EXPECT_EQ(found.kernels, expected.kernels);
      const auto [known, fresh] = factors.try_emplace(entry.text, factor);
      EXPECT_DOUBLE_EQ(known->second, factor) << entry.text;
      least = std::min(least, factor);
      most = std::max(most, factor);
    }
    EXPECT_EQ(factors.size(), 4u);
    EXPECT_NE(factors["mm"], factors["add"]);
    const double memory =
        Truth(seed).with_true_memory(cost::default_gpu()).bandwidth / cost::default_gpu().bandwidth;
    const double link =
        Truth(seed).with_true_rate(cost::default_host_link()).bandwidth / cost::default_host_link().bandwidth;
    EXPECT_TRUE(memory >= 0.6 && memory < 1 && link >= 0.6 && link < 1 && memory != link);
  }
  EXPECT_GE(least, 0.5);
  EXPECT_LT(least, 0.51);
  EXPECT_LE(most, 2);
  EXPECT_GT(most, 1.96);
}

TEST(Truth, IsTheSameForASeed) {
  const AccessRecord model = parsed(unlike_kernels(2));
  const AccessRecord once = with_true_kernels(model, Truth(7)), again = with_true_kernels(model, Truth(7)),
                     other = with_true_kernels(model, Truth(8));
  EXPECT_EQ(once.entries[1].work.flops, again.entries[1].work.flops);
  EXPECT_NE(once.entries[1].work.bytes, other.entries[1].work.bytes);
}

// Where the model is right the truth changes nothing.
TEST(Truth, AModelThatIsRightPlansAsTheGpuItself) {
  const AccessRecord record = parsed(unlike_kernels(3));
  const std::vector<double> shares = {0.8, 0.6};
  const cost::GpuModel gpu = cost::default_gpu();
  const cost::LinkModel link = cost::default_host_link();
  const Comparison told = compare(record, gpu, link, shares, 12).value();
  const Comparison modelled =
      compare(record, gpu, link, shares, 12, kHostBandwidth, {KernelTimes::By::model, &record}).value();
  ASSERT_EQ(told.rows.size(), 2u);
  for (size_t i = 0; i < told.rows.size(); ++i) {
    ASSERT_TRUE(told.rows[i].fits.ok() && modelled.rows[i].fits.ok());
    EXPECT_NEAR(told.rows[i].planned.seconds, modelled.rows[i].planned.seconds,
                1e-9 * told.rows[i].planned.seconds);
    EXPECT_EQ(told.rows[i].planned.in, modelled.rows[i].planned.in);
  }
}

// The truth decides the GPU's times, whichever model the plans come from.
TEST(Truth, KernelsTakeTheSameTimeUnderEveryPlanner) {
  const AccessRecord model = parsed(unlike_kernels(3));
  const AccessRecord truth = with_true_kernels(model, Truth(3));
  const std::vector<double> all = {1};
  const cost::GpuModel gpu = cost::default_gpu();
  const cost::LinkModel link = cost::default_host_link();
  const Comparison told = compare(truth, gpu, link, all, 4).value();
  const Comparison modelled =
      compare(truth, gpu, link, all, 4, kHostBandwidth, {KernelTimes::By::model, &model}).value();
  EXPECT_EQ(told.kernels, modelled.kernels);
  EXPECT_NE(told.kernels, compare(model, gpu, link, all, 4).value().kernels);
  EXPECT_EQ(told.rows[0].planned.seconds, modelled.rows[0].planned.seconds);
}

}  // namespace
}  // namespace innkeeper::replay
