// Threads that write while records of them begin and end: a record is whole, in its thread's order, and
// without holes; a thread that reads at once reads its own writes.
#include "trace/stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "support/watchdog.h"

namespace innkeeper::trace {
namespace {

constexpr size_t kThreads = 3;

// The number of an operation is in its accesses.
Event tell(Stream& stream, OperatorName name, uint64_t number) {
  return stream.operation({name, {}}, NodeId{2}, 1 + number % 11, [number](size_t i) {
    return RecordedAccess{BlockId{number}, Bytes(static_cast<int64_t>(i)), AccessKind::write};
  });
}

void expect_whole(const Event& event, uint64_t number) {
  ASSERT_EQ(event.kind, EventKind::operation);
  ASSERT_EQ(event.accesses.size(), 1 + number % 11);
  for (size_t i = 0; i < event.accesses.size(); ++i) {
    ASSERT_EQ(event.accesses[i].block, BlockId{number});
    ASSERT_EQ(event.accesses[i].size, Bytes(static_cast<int64_t>(i)));
  }
}

TEST(StreamStress, RecordsBeginAndEndWhileThreadsWrite) {
  const test::Watchdog watchdog(std::chrono::seconds(120));
  Stream stream(64);
  std::atomic<bool> through{false};
  std::array<std::atomic<uint64_t>, kThreads> written{};
  std::vector<std::thread> threads;
  for (size_t which = 0; which < kThreads; ++which) {
    threads.emplace_back([&, which] {
      const OperatorName name = stream.name("op" + std::to_string(which));
      for (uint64_t number = 1; !through; ++number) {
        const Event event = tell(stream, name, number);
        expect_whole(event, number);
        written.at(which) = number;
      }
    });
  }
  size_t events_in_all = 0;
  for (int record = 0; record < 30 || events_in_all < 3000; ++record) {
    std::array<uint64_t, kThreads> before{};
    for (size_t i = 0; i < kThreads; ++i) before.at(i) = written.at(i);
    stream.start(record % 3 == 0 ? 200 : SIZE_MAX);
    for (int i = 0; i < 5; ++i) std::this_thread::yield();
    std::array<uint64_t, kThreads> after{};
    for (size_t i = 0; i < kThreads; ++i) after.at(i) = written.at(i);
    Merged merged = stream.stop();
    const std::vector<std::string_view> names = stream.names();
    std::array<uint64_t, kThreads> last{};
    for (Event event; merged.next(event); ++events_in_all) {
      const size_t which = static_cast<size_t>(names[static_cast<uint32_t>(event.name)].back() - '0');
      ASSERT_LT(which, kThreads);
      uint64_t& number = last.at(which);
      if (number == 0) {
        number = static_cast<uint64_t>(event.accesses[0].block);
        EXPECT_GT(number, before.at(which)) << "what was written before is not in it";
      } else {
        ++number;
      }
      expect_whole(event, number);
    }
    if (merged.dropped() != 0) continue;
    for (size_t i = 0; i < kThreads; ++i) {
      EXPECT_TRUE(last.at(i) == 0 || last.at(i) >= after.at(i)) << "all that was written is in it";
    }
  }
  through = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace innkeeper::trace
