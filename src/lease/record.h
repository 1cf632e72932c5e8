// Content of a lease file: the holder, and its claims on GPUs. It counts only while the file is locked: the
// kernel's lock is the lease's life, never the file's content.
//
// A file has two slots of kSlotBytes. A change is written to the slot that is not in force, whole and with a
// checksum. A writer killed in the middle therefore leaves the old record in force. The valid slot with the
// higher revision is in force. A slot is text: one header line, then one `key=value` per line:
//
//   innkeeper-lease 1 <revision> <length of the rest> <FNV-1a of the rest, hex>
//
// Files of other users are hostile input. decode() accepts any bytes, and returns a record within the limits
// below or none; a file without a valid slot claims no bytes. Unknown keys are skipped and keys never change
// their meaning, so that versions of the program can share a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "lease/gpu.h"

namespace innkeeper::lease {

inline constexpr size_t kSlotBytes = 8192;
inline constexpr size_t kMaxClaims = 64;      // Most GPUs in one lease.
inline constexpr size_t kMaxUuidLength = 96;  // Longest UUID, bytes; an old MIG name has 52.
inline constexpr size_t kMaxWholes = 16;      // Deepest nesting of parts of leases.
inline constexpr size_t kMaxTextLength = 400;
// Latest time, ns: 146 years, so that two times can be added.
inline constexpr int64_t kLatestNs = INT64_MAX / 2;

// A claim on `bytes` of a GPU; an exclusive lease claims the whole GPU.
struct Claim {
  std::string uuid;
  Bytes bytes;
  bool operator==(const Claim&) const = default;
};

enum class Kind : uint8_t {
  held,     // A lease.
  waiting,  // A place in the line; its claims are kept free of later requests.
};

struct Record {
  Kind kind = Kind::held;
  uint64_t revision = 0;
  std::vector<Claim> claims;  // Each GPU once, sorted by UUID.
  bool exclusive = false;
  // Ids of the leases that this one is a part of, nearest first; mostly empty. All of them are stored, so
  // that the next one is known when one in the middle ends.
  std::vector<std::string> inside;

  // Request of a waiting record: number of GPUs and bytes on each.
  int64_t count = 0;
  Bytes each;
  std::vector<std::string> allowed;  // UUIDs of the allowed GPUs; empty: every GPU.

  // Times by the machine's clock (base/clock.h), ns. The file also states them by the wall clock, for people
  // and for versions of the program that read only that.
  int64_t since_ns = 0;
  int64_t expires_ns = 0;  // Expiry; 0: never.

  // Attribution, and text for people. `uid` is the file's owner, whatever the record states.
  uint32_t uid = 0;
  ProcessKey process;
  uint64_t pid_namespace = 0;
  std::string boot_id;
  std::string command;  // Printable.
  std::string job;      // Printable.

  bool expired(int64_t now_ns) const { return expires_ns != 0 && expires_ns <= now_ns; }
};

// Returns one slot's bytes. Fails if the record does not fit or breaks a limit.
Result<std::string> encode(const Record& record);

// Returns the command for display. A queued job's has the job's number in front, since its
// process is the queue's.
std::string shown_command(const Record& record);

// Returns the record in force in a file's first 2 * kSlotBytes, if any.
std::optional<Record> decode(std::string_view file);

// Makes other users' text fit for a terminal and for a line of a record (base/printable.h).
std::string printable(std::string_view text);

bool valid_uuid(std::string_view uuid);
bool valid_id(std::string_view id);  // Returns whether it is 16 hexadecimal digits.

}  // namespace innkeeper::lease
