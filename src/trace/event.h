// Encodes operators' accesses to blocks as words of 64 bits, in which form they are passed on and stored.
// Plans, records and reports decode them here.
//
//     operation   head, order, [flops, bytes, kernels,] then for each access: block and kind, size
//     freed       head, order, block
//     mark        head, order, letters, eight a word
//     gap         head: the given number of words, the head included, have no content
//
// The head has the kind (bits 0 and 1), whether work is known (2), the node (4 to 11), the operator's name
// (12 to 31) and the number of accesses, letters or words (32 to 63). An access's first word is its block's
// id times four, plus 0 (read), 1 (written), 2 (born) or 3 (pure). The lowest byte of the kernels' word is
// the precision of the flops.
//
// The order is the event's ordinal among all events of a stream, of all threads; 0: the event
// belongs to no record.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.h"
#include "cost/precision.h"

namespace innkeeper::trace {

// Kind of an access. Pure: born, with the same bits whenever its operator reads the same.
enum class AccessKind : char { read = 'r', write = 'w', born = 'o', pure = 'p' };

constexpr bool is_born(AccessKind kind) { return kind == AccessKind::born || kind == AccessKind::pure; }

// Work of an operator on its node; no kernels: unknown.
struct Work {
  double flops = 0;
  double bytes = 0;  // Bytes read and written.
  int64_t kernels = 0;
  cost::Precision precision = cost::Precision::bf16;  // Precision of `flops`.
};

struct RecordedAccess {
  BlockId block;
  Bytes size;
  AccessKind kind;
};

// An operator's name, as the stream knows it. 0: none; no record contains such an operation.
enum class OperatorName : uint32_t {};
inline constexpr uint32_t kMostNames = uint32_t{1} << 20;

// Attributes of an operation apart from its accesses.
struct Operation {
  OperatorName name{0};
  Work work = {};
};

enum class EventKind : uint8_t { operation, freed, mark };

// The accesses of an operation, decoded from its words.
class Accesses {
 public:
  Accesses() = default;
  explicit Accesses(std::span<const uint64_t> words) : words_(words) {}
  size_t size() const { return words_.size() / 2; }
  RecordedAccess operator[](size_t index) const {
    constexpr AccessKind kKinds[] = {AccessKind::read, AccessKind::write, AccessKind::born, AccessKind::pure};
    const uint64_t first = words_[2 * index];
    return {BlockId{first / 4}, Bytes(static_cast<int64_t>(words_[2 * index + 1])), kKinds[first % 4]};
  }

 private:
  std::span<const uint64_t> words_;
};

// A decoded event. It refers to the words from which it was decoded.
struct Event {
  EventKind kind = EventKind::mark;
  uint64_t order = 0;
  NodeId node = kNoNode;
  OperatorName name{0};
  Work work = {};
  Accesses accesses = {};
  BlockId block{};             // Block that was freed.
  std::string_view text = {};  // Text of a mark.
};

// ---- Encoding. Requires: `to` has space for the number of words that the functions below return.

constexpr size_t words_of_operation(const Operation& what, size_t accesses) {
  return 2 + (what.work.kernels != 0 ? 3 : 0) + 2 * accesses;
}
constexpr size_t words_of_freed() { return 3; }
constexpr size_t words_of_mark(std::string_view text) { return 2 + (text.size() + 7) / 8; }

// `each(i)` returns RecordedAccess number i.
template <class Each>
void write_operation(uint64_t* to, uint64_t order, NodeId node, const Operation& what, size_t accesses,
                     const Each& each) {
  const bool known = what.work.kernels != 0;
  *to++ = uint64_t{static_cast<uint8_t>(EventKind::operation)} | uint64_t{known ? 4u : 0u} |
          uint64_t{index_of(node)} << 4 | uint64_t{static_cast<uint32_t>(what.name)} << 12 |
          uint64_t{accesses} << 32;
  *to++ = order;
  if (known) {
    *to++ = std::bit_cast<uint64_t>(what.work.flops);
    *to++ = std::bit_cast<uint64_t>(what.work.bytes);
    *to++ = static_cast<uint64_t>(what.work.kernels) << 8 | static_cast<uint64_t>(what.work.precision);
  }
  for (size_t i = 0; i < accesses; ++i) {
    const RecordedAccess access = each(i);
    constexpr std::string_view kLetters = "rwop";
    const uint64_t kind = kLetters.find(static_cast<char>(access.kind));
    *to++ = static_cast<uint64_t>(access.block) * 4 + kind;
    *to++ = static_cast<uint64_t>(access.size.count());
  }
}
void write_freed(uint64_t* to, uint64_t order, BlockId block);
void write_mark(uint64_t* to, uint64_t order, std::string_view text);
void write_gap(uint64_t* to, size_t words);

// ---- Decoding.

// Removes the event at the front of `words`, skipping gaps; returns false if there is none.
bool read_event(std::span<const uint64_t>& words, Event& event);

}  // namespace innkeeper::trace
