// A record of accesses, read back (the format is in recorder.h).
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
  std::string text = {};  // the operator's name, or the mark
  Work work = {};
  size_t first = 0;  // of its accesses
  size_t count = 0;
  BlockId block{};  // that was freed
};

struct AccessRecord {
  std::vector<RecordEntry> entries;
  std::vector<RecordedAccess> accesses;

  std::span<const RecordedAccess> of(const RecordEntry& entry) const {
    return std::span(accesses).subspan(entry.first, entry.count);
  }
};

// Fails on the first line that is none, with its number; also where numbers are beyond all measure: 16 TiB of
// a block, a million kernels of an operator.
Result<AccessRecord> parse_record(std::string_view text);

// At the end of a step of the program.
inline bool ends_step(const RecordEntry& entry) {
  return entry.kind == RecordEntry::Kind::mark && entry.text == "step";
}

// Entries up to and with each step's last, the mark.
std::vector<size_t> step_ends(const AccessRecord& record);

}  // namespace innkeeper::trace
