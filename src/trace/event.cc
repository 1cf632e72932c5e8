#include "trace/event.h"

#include <cstring>

namespace innkeeper::trace {
namespace {

constexpr uint64_t kGap = 3;

constexpr uint64_t head(EventKind kind, uint64_t count) { return static_cast<uint64_t>(kind) | count << 32; }

}  // namespace

void write_freed(uint64_t* to, uint64_t order, BlockId block) {
  to[0] = head(EventKind::freed, 0);
  to[1] = order;
  to[2] = static_cast<uint64_t>(block);
}

void write_mark(uint64_t* to, uint64_t order, std::string_view text) {
  to[0] = head(EventKind::mark, text.size());
  to[1] = order;
  if (!text.empty()) std::memcpy(to + 2, text.data(), text.size());
}

void write_gap(uint64_t* to, size_t words) { to[0] = kGap | uint64_t{words} << 32; }

bool read_event(std::span<const uint64_t>& words, Event& event) {
  while (!words.empty() && words[0] % 4 == kGap) words = words.subspan(words[0] >> 32);
  if (words.empty()) return false;
  const uint64_t first = words[0];
  const size_t count = first >> 32;
  event = {.kind = static_cast<EventKind>(first % 4), .order = words[1]};
  words = words.subspan(2);
  const auto take = [&words](size_t number) {
    const std::span<const uint64_t> taken = words.first(number);
    words = words.subspan(number);
    return taken;
  };
  switch (event.kind) {
    case EventKind::operation:
      event.node = NodeId{static_cast<uint8_t>(first >> 4)};
      event.name = OperatorName{static_cast<uint32_t>(first >> 12) % kMostNames};
      if ((first & 4) != 0) {
        const auto work = take(3);
        event.work = {std::bit_cast<double>(work[0]), std::bit_cast<double>(work[1]),
                      static_cast<int64_t>(work[2] >> 8), static_cast<cost::Precision>(work[2] & 0xFF)};
      }
      event.accesses = Accesses(take(2 * count));
      break;
    case EventKind::freed: event.block = BlockId{take(1)[0]}; break;
    case EventKind::mark:
      event.text = {reinterpret_cast<const char*>(words.data()), count};
      take((count + 7) / 8);
      break;
  }
  return true;
}

}  // namespace innkeeper::trace
