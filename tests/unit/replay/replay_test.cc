// Records: reading, continuation, replay, and the rules that they are compared with.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <unordered_map>

#include "replay/comparison.h"
#include "replay/more_steps.h"
#include "replay/offline.h"
#include "replay/player.h"
#include "support/parsed_record.h"

namespace innkeeper::replay {
namespace {

using test::parsed;
using trace::AccessRecord;
using trace::RecordEntry;

constexpr int64_t kBlock = 1 << 20;

std::string access(int block, char kind) {
  return " " + std::to_string(block) + ":" + std::to_string(kBlock) + kind;
}

// Ten weights, read in a fixed order in each step, and a result that the next step frees.
std::string circle(int steps) {
  std::string text;
  for (int weight = 1; weight <= 10; ++weight) text += "O make" + access(weight, 'o') + "\n";
  for (int step = 0; step < steps; ++step) {
    for (int weight = 1; weight <= 10; ++weight) {
      text += "O use =1000000000,1000,1" + access(weight, 'r');
      if (weight == 5) text += access(100 + step, 'o');
      text += "\n";
      if (weight == 7 && step > 0) text += "F " + std::to_string(99 + step) + "\n";
    }
    text += "M step\n";
  }
  return text;
}

TEST(AccessRecord, IsReadBack) {
  const AccessRecord record = parsed("O mm =200,30,2 1:64r 2:128w 3:64o\n\nO empty\nF 3\nM step 1\nM step\n");
  ASSERT_EQ(record.entries.size(), 5u);
  EXPECT_EQ(record.entries[0].text, "mm");
  EXPECT_EQ(record.entries[0].work.flops, 200);
  EXPECT_EQ(record.entries[0].work.bytes, 30);
  EXPECT_EQ(record.entries[0].work.kernels, 2);
  ASSERT_EQ(record.of(record.entries[0]).size(), 3u);
  EXPECT_EQ(record.of(record.entries[0])[1].size, Bytes(128));
  EXPECT_EQ(record.of(record.entries[0])[1].kind, trace::AccessKind::write);
  EXPECT_TRUE(record.of(record.entries[1]).empty());
  EXPECT_EQ(record.entries[2].kind, RecordEntry::Kind::freed);
  EXPECT_EQ(record.entries[2].block, BlockId{3});
  EXPECT_FALSE(ends_step(record.entries[3]));
  EXPECT_TRUE(ends_step(record.entries[4]));
}

TEST(AccessRecord, GarbageIsNamedByItsLine) {
  for (const std::string bad :
       {"X", "O", "O mm 1", "O mm 1:r", "O mm 1:64", "O mm 1:64x", "O mm 1:-64r", "F", "F x", "F 1 2",
        "O mm =1,2 1:64r", "O mm =1,2,3,4 1:64r", "O mm =-1,2,3", "O mm 99999999999999999999:1r",
        "O mm 1:64rr", "\x1f\x8b", "O mm =1,1,1000000000 1:64r", "O mm 1:9223372036854775807r",
        "O mm 281474976710656:64r"}) {
    const Result<AccessRecord> record = trace::parse_record("O fine 1:64o\n" + bad + "\n");
    ASSERT_FALSE(record.ok()) << bad;
    EXPECT_NE(record.status().message().find("line 2"), std::string::npos) << record.status().message();
  }
}

TEST(Steps, GoOnAsTheLastOneWas) {
  const AccessRecord record = parsed(circle(3));
  const Result<AccessRecord> more = with_more_steps(record, 2);
  ASSERT_TRUE(more.ok()) << more.status().message();
  // The same program, recorded for as long: its later blocks have other names in the same places.
  const AccessRecord whole = parsed(circle(5));
  ASSERT_EQ(more.value().entries.size(), whole.entries.size());
  std::unordered_map<BlockId, BlockId> names;
  for (size_t i = 0; i < whole.entries.size(); ++i) {
    const RecordEntry& is = more.value().entries[i];
    const RecordEntry& wanted = whole.entries[i];
    EXPECT_EQ(is.text, wanted.text);
    ASSERT_EQ(is.count, wanted.count);
    for (size_t k = 0; k < is.count; ++k) {
      const BlockId known =
          names.try_emplace(whole.of(wanted)[k].block, more.value().of(is)[k].block).first->second;
      EXPECT_EQ(more.value().of(is)[k].block, known) << "entry " << i;
    }
    if (wanted.kind == RecordEntry::Kind::freed) {
      EXPECT_EQ(names.at(wanted.block), is.block) << "entry " << i;
    }
  }
  std::set<BlockId> others;
  for (const auto& [recorded, other] : names) others.insert(other);
  EXPECT_EQ(others.size(), names.size()) << "each block has a name of its own";
}

TEST(Steps, ThatDifferOrAreTooFewAreRefused) {
  EXPECT_NE(with_more_steps(parsed(circle(2)), 1).status().message().find("2 steps"), std::string::npos);
  std::string text = circle(3);
  text.replace(text.rfind("use"), 3, "add");
  EXPECT_NE(with_more_steps(parsed(text), 1).status().message().find("differ"), std::string::npos);
  text = circle(3);
  const size_t last = text.rfind(access(9, 'r'));
  text.replace(last, access(9, 'r').size(), access(8, 'r'));
  EXPECT_NE(with_more_steps(parsed(text), 1).status().message().find("differ"), std::string::npos)
      << "other weights are another step";
}

TEST(Steps, OfARecordThatIsNotWholeOrDoesNothingAreRefused) {
  EXPECT_NE(with_more_steps(parsed(circle(3) + "M dropped 7\n"), 1).status().message().find("dropped 7"),
            std::string::npos);
  EXPECT_NE(with_more_steps(parsed("O a 1:64o\nM step\nM step\nM step\n"), 1)
                .status()
                .message()
                .find("no operator"),
            std::string::npos);
}

TEST(Player, TakesABlockThatIsBornTwiceOnce) {
  std::string text;
  for (int step = 0; step < 50; ++step) text += "O a 1:1024o 1:1024o 1:1024r\nF 1\nM step\n";
  const Result<Played> played = play(parsed(text), {.budget = KiB(1)});
  ASSERT_TRUE(played.ok()) << played.status().message();
  EXPECT_EQ(played.value().steps.back().in + played.value().steps.back().out, Bytes(0));
}

TEST(Offline, RulesMoveWhatIsKnownOfACircle) {
  const AccessRecord record = parsed(circle(6));
  EXPECT_EQ(most_alive(record), Bytes(12 * kBlock));
  const auto all = traffic(record, Bytes(12 * kBlock), Leaves::least_recently_used);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all.value().back().copies, 0) << "what fits is never moved";
  const auto lru = traffic(record, Bytes(9 * kBlock), Leaves::least_recently_used);
  ASSERT_TRUE(lru.ok());
  EXPECT_EQ(lru.value().size(), 6u);
  EXPECT_GE(lru.value().back().in, Bytes(10 * kBlock)) << "LRU fetches all of a circle that nearly fits";
  const auto best = traffic(record, Bytes(9 * kBlock), Leaves::farthest_next_use);
  ASSERT_TRUE(best.ok());
  EXPECT_LE(best.value().back().in, Bytes(3 * kBlock));
  EXPECT_LE(best.value().back().out, Bytes(2 * kBlock)) << "what nobody writes is copied out once";
  const auto none = traffic(record, Bytes(kBlock), Leaves::farthest_next_use);
  EXPECT_EQ(none.status().code(), Code::out_of_memory);
}

TEST(Player, TakesTheKernelsTimeWhereAllFits) {
  const AccessRecord record = parsed(circle(4));
  const cost::GpuModel gpu = cost::default_gpu();
  const Result<Played> played = play(record, {.gpu = gpu});
  ASSERT_TRUE(played.ok()) << played.status().message();
  EXPECT_EQ(played.value().operators, 50);
  EXPECT_EQ(played.value().peak, most_alive(record));
  const std::vector<double> kernels = kernel_seconds(record, gpu);
  ASSERT_EQ(played.value().steps.size(), kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i)
    EXPECT_NEAR(played.value().steps[i].seconds, kernels[i], 1e-9) << "step " << i;
}

TEST(Player, MovesLittleByAPlanAndInTimeAlone) {
  const Result<AccessRecord> record = with_more_steps(parsed(circle(3)), 60);
  ASSERT_TRUE(record.ok());
  replay::Setup setup{.budget = Bytes(9 * kBlock)};
  const Result<Played> planned = play(record.value(), setup);
  setup.planning = false;
  const Result<Played> on_demand = play(record.value(), setup);
  ASSERT_TRUE(planned.ok() && on_demand.ok());
  EXPECT_LE(on_demand.value().steps.back().in, Bytes(3 * kBlock))
      << "what came back before is known without a plan";
  EXPECT_LE(planned.value().steps.back().in, Bytes(3 * kBlock));
  EXPECT_LT(planned.value().steps.back().seconds, on_demand.value().steps.back().seconds);
}

// Layers that read a weight and the layer before, and a pure operator on each. Then the program reads all in
// reverse order. Each operator does the given arithmetic.
std::string training(int layers, int steps, const std::string& work = "1000000000") {
  std::string text;
  const auto op = [&](const std::string& accesses) { text += "O op =" + work + ",1000,1" + accesses + "\n"; };
  const auto free = [&text](int block) { text += "F " + std::to_string(block) + "\n"; };
  for (int weight = 1; weight <= layers; ++weight) op(access(weight, 'o'));
  for (int step = 0; step < steps; ++step) {
    const int wide = 1000 * (step + 1);
    const int narrow = wide + 500;
    for (int i = 1; i <= layers; ++i) {
      op(access(i, 'r') + (i > 1 ? access(narrow + i - 1, 'r') : "") + access(wide + i, 'o'));
      op(access(wide + i, 'r') + access(narrow + i, 'p'));
    }
    for (int i = layers; i > 0; --i) {
      op(access(narrow + i, 'r') + access(i, 'r'));
      free(narrow + i);
      op(access(wide + i, 'r') + access(i, 'w'));
      free(wide + i);
    }
    text += "M step\n";
  }
  return text;
}

TEST(Player, ComputesAgainInsteadOfCopying) {
  const AccessRecord record = parsed(training(40, 12));
  replay::Setup setup{.budget = Bytes(80 * kBlock)};
  const Result<Played> planned = play(record, setup);
  setup.recompute = true;
  const Result<Played> recompute = play(record, setup);
  ASSERT_TRUE(planned.ok() && recompute.ok());
  const StepCost with = recompute.value().steps.back(), without = planned.value().steps.back();
  EXPECT_LT(with.in.count(), without.in.count() / 2);
  EXPECT_LT(with.seconds, without.seconds);
  EXPECT_EQ(recompute.value().operators, planned.value().operators)
      << "what is run again is not the program's";
}

// The time of kernels is known from the periods before: copies run concurrently, and to rerun some would
// take longer.
TEST(Player, ComputesNothingAgainWhereCopiesCostNothing) {
  const AccessRecord record = parsed(training(40, 12, "100000000000000"));
  replay::Setup setup{.budget = Bytes(80 * kBlock)};
  const Result<Played> planned = play(record, setup);
  setup.recompute = true;
  const Result<Played> recompute = play(record, setup);
  ASSERT_TRUE(planned.ok() && recompute.ok());
  EXPECT_GT(planned.value().steps.back().in, Bytes(0));
  EXPECT_NEAR(recompute.value().steps.back().seconds, planned.value().steps.back().seconds, 1e-3);
}

TEST(Player, SaysWhatDoesNotFit) {
  const Result<Played> played = play(parsed(circle(3)), {.budget = Bytes(kBlock)});
  ASSERT_FALSE(played.ok());
  EXPECT_EQ(played.status().code(), Code::out_of_memory);
  EXPECT_NE(played.status().message().find("use"), std::string::npos) << played.status().message();
}

TEST(Comparison, HasARowForEachShareAndSaysWhichDoesNotFit) {
  const std::array shares = {1.0, 0.95, 0.1};
  const Result<Comparison> found =
      compare(parsed(circle(3)), cost::default_gpu(), cost::default_host_link(), shares, 40);
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found.value().rows.size(), 3u);
  EXPECT_EQ(found.value().rows[0].planned.in, Bytes(0));
  EXPECT_LE(found.value().rows[1].planned.seconds, found.value().rows[1].pager.seconds);
  EXPECT_GE(found.value().rows[1].roofline, found.value().kernels);
  EXPECT_EQ(found.value().rows[2].fits.code(), Code::out_of_memory);
}

}  // namespace
}  // namespace innkeeper::replay
