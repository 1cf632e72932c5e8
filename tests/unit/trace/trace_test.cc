#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <vector>

#include "trace/record.h"
#include "trace/recorder.h"

namespace innkeeper::trace {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Recorder, WritesALineForEachEvent) {
  Recorder recorder;
  EXPECT_FALSE(recorder.on());
  recorder.start(100);
  EXPECT_TRUE(recorder.on());
  const RecordedAccess accesses[] = {{BlockId{3}, Bytes(64), AccessKind::read},
                                     {BlockId{4}, Bytes(0), AccessKind::write},
                                     {BlockId{17}, Bytes(1 << 20), AccessKind::born}};
  recorder.op("aten::mm.out", {.flops = 2e12, .bytes = 4096, .kernels = 1}, accesses);
  recorder.op("aten::empty", {}, {});
  recorder.freed(BlockId{3});
  recorder.mark("step 1\nF 4");
  EXPECT_EQ(
      recorder.stop(),
      "O aten::mm.out =2000000000000,4096,1 3:64r 4:0w 17:1048576o\nO aten::empty\nF 3\nM step 1 F 4\n");
  EXPECT_FALSE(recorder.on());
}

// A record states the precision of its flops, except bf16, and a reader gets it back unchanged.
TEST(Recorder, WritesThePrecisionOfFlops) {
  Recorder recorder;
  recorder.start(100);
  for (size_t i = 0; i < cost::kPrecisionNames.size(); ++i)
    recorder.op(
        "mm", {.flops = 8, .bytes = 4, .kernels = 1 << 20, .precision = static_cast<cost::Precision>(i)}, {});
  recorder.op("add", {.flops = 0, .bytes = 4, .kernels = 1, .precision = cost::Precision::fp64}, {});
  const std::string text = recorder.stop();
  EXPECT_EQ(text,
            "O mm =8,4,1048576,fp64\nO mm =8,4,1048576,fp32\nO mm =8,4,1048576,tf32\nO mm =8,4,1048576\n"
            "O mm =8,4,1048576,fp16\nO mm =8,4,1048576,fp8\nO mm =8,4,1048576,int8\nO add =0,4,1\n");
  const AccessRecord record = parse_record(text).value();
  for (size_t i = 0; i < cost::kPrecisionNames.size(); ++i) {
    EXPECT_EQ(record.entries[i].work.precision, static_cast<cost::Precision>(i));
    EXPECT_EQ(record.entries[i].work.kernels, 1 << 20);
  }
  for (const char* bad : {"O mm =8,4,1,\n", "O mm =8,4,1,fp31\n", "O mm =8,4,1fp32\n", "O mm =8,4,1,fp32,\n"})
    EXPECT_FALSE(parse_record(bad).ok()) << bad;
}

TEST(Recorder, RecordsNothingWhenOff) {
  Recorder recorder;
  recorder.mark("before");
  recorder.start(10);
  recorder.mark("one");
  EXPECT_EQ(recorder.stop(), "M one\n");
  recorder.freed(BlockId{1});
  EXPECT_EQ(recorder.stop(), "");
}

TEST(Recorder, StartForgetsWhatWasRecorded) {
  Recorder recorder;
  recorder.start(1);
  recorder.mark("one");
  recorder.mark("dropped");
  recorder.start(10);
  recorder.mark("two");
  EXPECT_EQ(recorder.stop(), "M two\n");
}

TEST(Recorder, CountsWhatDoesNotFit) {
  Recorder recorder;
  recorder.start(2);
  for (uint64_t block = 0; block < 5; ++block) recorder.freed(BlockId{block});
  EXPECT_EQ(recorder.stop(), "F 0\nF 1\nM dropped 3\n");
  recorder.start(0);
  recorder.mark("none");
  EXPECT_EQ(recorder.stop(), "M dropped 1\n");
}

TEST(Recorder, KeepsLinesOfThreadsWhole) {
  Recorder recorder;
  constexpr size_t kThreads = 4;
  constexpr uint64_t kLines = 500;
  recorder.start(kThreads * kLines);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&recorder, thread] {
      for (uint64_t i = 0; i < kLines; ++i) {
        const RecordedAccess access{BlockId{i}, Bytes(64), AccessKind::read};
        recorder.op("op" + std::to_string(thread), {}, std::span(&access, 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = lines_of(recorder.stop());
  ASSERT_EQ(lines.size(), kThreads * kLines);
  std::vector<uint64_t> next(kThreads, 0);
  for (const std::string& line : lines) {
    const auto thread = static_cast<size_t>(line.at(4) - '0');
    ASSERT_LT(thread, kThreads) << line;
    EXPECT_EQ(line, "O op" + std::to_string(thread) + " " + std::to_string(next[thread]++) + ":64r");
  }
}

}  // namespace
}  // namespace innkeeper::trace
