// What a lease file says: who claims how much of which card. It says so only while the file is locked: the
// kernel's lock is the lease's life, never its content.
//
// A file has two slots of kSlotBytes. A change is written to the slot that is not in force, whole and with a
// checksum, so that a writer killed in the middle leaves the old record in force. The valid slot with the
// higher revision counts. A slot is text, one `key=value` a line behind one line of header:
//
//   innkeeper-lease 1 <revision> <length of the rest> <FNV-1a of the rest, hex>
//
// Files of other users are hostile input. decode() takes any bytes and either gives a record that keeps to
// the limits below or none, and a file without a valid slot claims nothing. Keys that are not known are
// skipped and keys never change their meaning, so that versions of the program can share a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "lease/card.h"

namespace innkeeper::lease {

inline constexpr size_t kSlotBytes = 8192;
inline constexpr size_t kMaxClaims = 64;      // cards in one lease
inline constexpr size_t kMaxUuidLength = 96;  // an old MIG name has 52
inline constexpr size_t kMaxWholes = 16;      // of parts of parts
inline constexpr size_t kMaxTextLength = 400;
inline constexpr int64_t kLatestNs = INT64_MAX / 2;  // of a time: 146 years, so that two can be added

// A part of a card: `bytes` of it, all of it where the lease is exclusive.
struct Claim {
  std::string uuid;
  Bytes bytes;
  bool operator==(const Claim&) const = default;
};

enum class Kind : uint8_t {
  held,     // a lease
  waiting,  // a place in the line; its claims are kept free of those who came later
};

struct Record {
  Kind kind = Kind::held;
  uint64_t revision = 0;
  std::vector<Claim> claims;  // each card once, sorted by UUID
  bool exclusive = false;
  // The ids of the leases that this one is a part of, nearest first; empty for most. All of them, so that
  // when one in the middle ends the next is known.
  std::vector<std::string> inside;

  // Of waiting ones: what is waited for.
  int64_t count = 0;
  Bytes each;
  std::vector<std::string> allowed;  // empty: every card

  // By the machine's clock (base/clock.h). The file says them by the wall clock, too, for people and for
  // versions of the program that read nothing else.
  int64_t since_ns = 0;
  int64_t expires_ns = 0;  // 0: never

  // For people and for attribution. `uid` is the file's owner, not what the record says.
  uint32_t uid = 0;
  ProcessKey process;
  uint64_t pid_namespace = 0;
  std::string boot_id;
  std::string command;  // printable
  std::string job;      // printable

  bool expired(int64_t now_ns) const { return expires_ns != 0 && expires_ns <= now_ns; }
};

// One slot's bytes. Fails if it does not fit or breaks a limit.
Result<std::string> encode(const Record& record);

// Which command it is for, to be shown. A queued job's has its number in front, since its process is the
// queue's.
std::string shown_command(const Record& record);

// The record in force in a file's first 2 * kSlotBytes, if any.
std::optional<Record> decode(std::string_view file);

// Other people's text, fit for a terminal and for a line of a record (base/printable.h).
std::string printable(std::string_view text);

bool valid_uuid(std::string_view uuid);
bool valid_id(std::string_view id);  // 16 hexadecimal digits

}  // namespace innkeeper::lease
