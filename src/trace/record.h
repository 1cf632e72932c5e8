// Parses a record of accesses (the format is in recorder.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trace/event.h"

namespace innkeeper::trace {

struct RecordEntry {
  using Kind = EventKind;
  Kind kind = Kind::mark;
  std::string text = {};  // The operator's name, or the mark.
  Work work = {};
  size_t first = 0;  // Index of its first access.
  size_t count = 0;
  BlockId block{};  // Block that was freed.
};

struct AccessRecord {
  std::vector<RecordEntry> entries;
  std::vector<RecordedAccess> accesses;

  std::span<const RecordedAccess> of(const RecordEntry& entry) const {
    return std::span(accesses).subspan(entry.first, entry.count);
  }
};

// Fails on the first invalid line, with its number. It also fails on implausible numbers: above 16 TiB in a
// block, or a million kernels in an operator.
Result<AccessRecord> parse_record(std::string_view text);

// Returns whether the entry is the mark at the end of a step of the program.
inline bool ends_step(const RecordEntry& entry) {
  return entry.kind == RecordEntry::Kind::mark && entry.text == "step";
}

// Returns for each step the number of entries up to and including its last one, the mark.
std::vector<size_t> step_ends(const AccessRecord& record);

}  // namespace innkeeper::trace
