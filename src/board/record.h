// The record that a process's engine publishes to `innkeeper top`: its nodes, their resident
// bytes, and its moves.
//
// A file's content is text: a header line `innkeeper-board 1 <length of the rest> <FNV-1a of the rest, hex>`,
// then one `key=value` per line. Files of other users are hostile input: decode() accepts any bytes, and
// returns a record within the limits below or none. Unknown keys are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace innkeeper::board {

inline constexpr size_t kFileBytes = 4096;
inline constexpr size_t kMaxNodes = 16;
inline constexpr size_t kMaxNameLength = 32;

struct NodeRow {
  std::string name;  // Name as in INNKEEPER_NODES: "cuda:0", "host".
  Bytes budget, resident, peak;
  int64_t evictions = 0;
  int64_t operators = 0;
  bool operator==(const NodeRow&) const = default;
};

struct Record {
  int64_t pid = 0;
  uint64_t pid_namespace = 0;  // PID namespace; numbers of another namespace mean nothing here.
  std::string command;         // Printable, shortened to fit.
  std::vector<NodeRow> nodes;
  bool operator==(const Record&) const = default;
};

// Returns at most kFileBytes. Fails if a limit is exceeded.
Result<std::string> encode(const Record& record);
std::optional<Record> decode(std::string_view file);

}  // namespace innkeeper::board
