// What a process's engine shows of itself to `innkeeper top`: its nodes, what is resident on them, what
// moved.
//
// A file's content is text: a header line `innkeeper-board 1 <length of the rest> <FNV-1a of the rest, hex>`,
// then one `key=value` a line. Files of other users are hostile input: decode() takes any bytes and gives a
// record within the limits below or none. Keys that are not known are skipped.
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
  std::string name;  // as in INNKEEPER_NODES: "cuda:0", "host"
  Bytes budget, resident, peak;
  int64_t evictions = 0;
  int64_t operators = 0;
  bool operator==(const NodeRow&) const = default;
};

struct Record {
  int64_t pid = 0;
  uint64_t pid_namespace = 0;  // numbers of another one mean nothing here
  std::string command;         // printable, cut to what fits
  std::vector<NodeRow> nodes;
  bool operator==(const Record&) const = default;
};

// At most kFileBytes. Fails if a limit is broken.
Result<std::string> encode(const Record& record);
std::optional<Record> decode(std::string_view file);

}  // namespace innkeeper::board
