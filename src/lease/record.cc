#include "lease/record.h"

#include <algorithm>

#include "base/clock.h"
#include "base/lines.h"
#include "base/printable.h"

namespace innkeeper::lease {
namespace {

constexpr std::string_view kMagic = "innkeeper-lease 1 ";

bool read_bytes(std::string_view text, Bytes& value) {
  int64_t count = 0;
  if (!read_number(text, count)) return false;
  value = Bytes(count);
  return true;
}

bool read_claim(std::string_view value, Record& record) {
  const std::string_view uuid = cut(value, ' ');
  Claim claim{std::string(uuid), Bytes(0)};
  if (!valid_uuid(uuid) || !read_bytes(value, claim.bytes) || record.claims.size() == kMaxClaims)
    return false;
  // Claims are sorted, so each GPU occurs once.
  if (!record.claims.empty() && record.claims.back().uuid >= claim.uuid) return false;
  record.claims.push_back(std::move(claim));
  return true;
}

// Times of a record as the file states them, by the wall clock and by the machine's clock. A machine time of
// zero counts as zero, whatever the wall time is.
struct Times {
  std::optional<int64_t> since_wall, expires_wall, since, expires;
};

bool read_time(std::string_view text, std::optional<int64_t>& time_ns) {
  int64_t value = 0;
  if (!read_number(text, value) || value > kLatestNs) return false;
  time_ns = value;
  return true;
}

// `wall` comes from versions of the program that knew only the wall clock. The result is never zero unless
// `wall` is, because zero means "none".
int64_t by_the_machines_clock(std::optional<int64_t> time, std::optional<int64_t> wall) {
  if (time) return *time;
  return wall.value_or(0) == 0 ? 0 : std::max(int64_t{1}, *wall - wall_ahead_ns());
}

bool read_line(std::string_view key, std::string_view value, Record& record, Times& times) {
  if (key == "kind") {
    record.kind = value == "waiting" ? Kind::waiting : Kind::held;
    return value == "waiting" || value == "held";
  }
  if (key == "gpu") return read_claim(value, record);
  if (key == "exclusive") {
    record.exclusive = value == "1";
    return value == "0" || value == "1";
  }
  if (key == "inside") {
    record.inside.emplace_back(value);
    return valid_id(value) && record.inside.size() <= kMaxWholes;
  }
  if (key == "count")
    return read_number(value, record.count) && record.count <= static_cast<int64_t>(kMaxClaims);
  if (key == "each") return read_bytes(value, record.each);
  if (key == "allowed") {
    record.allowed.emplace_back(value);
    return valid_uuid(value) && record.allowed.size() <= kMaxClaims;
  }
  if (key == "since") return read_time(value, times.since_wall);
  if (key == "expires") return read_time(value, times.expires_wall);
  if (key == "since_start") return read_time(value, times.since);
  if (key == "expires_start") return read_time(value, times.expires);
  if (key == "pid") return read_number(value, record.process.pid);
  if (key == "start") return read_number(value, record.process.start_ticks);
  if (key == "pidns") return read_number(value, record.pid_namespace);
  if (key == "boot") record.boot_id = printable(value);
  if (key == "command") record.command = printable(value);
  if (key == "job") record.job = printable(value);
  return true;
}

std::optional<Record> decode_slot(std::string_view slot) {
  if (!slot.starts_with(kMagic)) return std::nullopt;
  slot.remove_prefix(kMagic.size());
  const size_t line_end = slot.find('\n');
  if (line_end > 64) return std::nullopt;  // A longer position includes npos: there is no line end.
  std::string_view header = slot.substr(0, line_end);
  std::string_view rest = slot.substr(line_end + 1);
  Record record;
  Times times;
  size_t length = 0;
  uint64_t checksum = 0;
  const std::string_view revision = cut(header, ' ');
  const std::string_view length_text = cut(header, ' ');
  if (!read_number(revision, record.revision) || !read_number(length_text, length) ||
      !read_number(header, checksum, 16) || length > rest.size())
    return std::nullopt;
  rest = rest.substr(0, length);
  // The checksum covers the revision, which decides which slot is in force.
  if ((fnv1a(rest) ^ record.revision) != checksum) return std::nullopt;
  while (!rest.empty()) {
    std::string_view line = cut(rest, '\n');
    const std::string_view key = cut(line, '=');
    if (!read_line(key, line, record, times)) return std::nullopt;
  }
  record.since_ns = by_the_machines_clock(times.since, times.since_wall);
  record.expires_ns = by_the_machines_clock(times.expires, times.expires_wall);
  return record;
}

}  // namespace

bool valid_uuid(std::string_view uuid) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '/' || c == '_' || c == ':' || c == '.';
  };
  return !uuid.empty() && uuid.size() <= kMaxUuidLength && std::all_of(uuid.begin(), uuid.end(), allowed);
}

bool valid_id(std::string_view id) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return id.size() == 16 && std::all_of(id.begin(), id.end(), digit);
}

std::string printable(std::string_view text) { return innkeeper::printable(text, kMaxTextLength); }

Result<std::string> encode(const Record& record) {
  if (record.allowed.size() > kMaxClaims)
    return Status(Code::invalid_argument,
                  "cannot wait in line: the " + std::to_string(record.allowed.size()) +
                      " GPUs that may be used are not all of the machine's, and of a part "
                      "at most " +
                      std::to_string(kMaxClaims) + " can be written down");
  std::string body;
  const auto line = [&](std::string_view key, std::string_view value) {
    body.append(key).append("=").append(value).append("\n");
  };
  const auto number = [&](std::string_view key, auto value) { line(key, std::to_string(value)); };
  line("kind", record.kind == Kind::waiting ? "waiting" : "held");
  for (const Claim& claim : record.claims)
    line("gpu", claim.uuid + " " + std::to_string(claim.bytes.count()));
  if (record.exclusive) line("exclusive", "1");
  for (const std::string& id : record.inside) line("inside", id);
  if (record.kind == Kind::waiting) {
    number("count", record.count);
    number("each", record.each.count());
    for (const std::string& uuid : record.allowed) line("allowed", uuid);
  }
  number("since", record.since_ns + wall_ahead_ns());
  number("since_start", record.since_ns);
  if (record.expires_ns != 0) {
    number("expires", record.expires_ns + wall_ahead_ns());
    number("expires_start", record.expires_ns);
  }
  number("uid", record.uid);
  number("pid", record.process.pid);
  number("start", record.process.start_ticks);
  number("pidns", record.pid_namespace);
  line("boot", printable(record.boot_id));
  line("command", printable(record.command));
  if (!record.job.empty()) line("job", printable(record.job));

  std::string slot(kMagic);
  slot += std::to_string(record.revision) + " " + std::to_string(body.size()) + " " +
          hex(fnv1a(body) ^ record.revision) + "\n" + body;
  // The written slot must be readable: a UUID with a space would claim no bytes.
  if (slot.size() > kSlotBytes || !decode_slot(slot))
    return Status(Code::invalid_argument,
                  "a lease on " + std::to_string(std::max(record.claims.size(), record.allowed.size())) +
                      " GPUs cannot be written down: at most " + std::to_string(kMaxClaims) +
                      " can be named, each once and by a UUID of at most " + std::to_string(kMaxUuidLength) +
                      " characters");
  return slot;
}

std::optional<Record> decode(std::string_view file) {
  std::optional<Record> first = decode_slot(file.substr(0, kSlotBytes));
  if (file.size() <= kSlotBytes) return first;
  std::optional<Record> second = decode_slot(file.substr(kSlotBytes, kSlotBytes));
  if (!second || (first && first->revision >= second->revision)) return first;
  return second;
}

std::string shown_command(const Record& record) {
  return record.job.empty() ? record.command : record.job + ": " + record.command;
}

}  // namespace innkeeper::lease
