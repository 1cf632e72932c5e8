#include "board/record.h"

#include "base/lines.h"
#include "lease/record.h"

namespace innkeeper::board {
namespace {

constexpr std::string_view kMagic = "innkeeper-board 1 ";
constexpr size_t kHeaderSpace = 64;

bool valid_name(std::string_view name) {
  const auto allowed = [](char c) { return c > ' ' && c <= '~'; };
  return !name.empty() && name.size() <= kMaxNameLength && std::all_of(name.begin(), name.end(), allowed);
}

// Format: "<name> <budget> <resident> <peak> <evictions> <operators>"
bool read_node(std::string_view text, Record& record) {
  NodeRow row;
  row.name = cut(text, ' ');
  int64_t numbers[5] = {};
  for (int64_t& number : numbers) {
    if (!read_number(cut(text, ' '), number)) return false;
  }
  if (!valid_name(row.name) || !text.empty() || record.nodes.size() == kMaxNodes) return false;
  row.budget = Bytes(numbers[0]);
  row.resident = Bytes(numbers[1]);
  row.peak = Bytes(numbers[2]);
  row.evictions = numbers[3];
  row.operators = numbers[4];
  record.nodes.push_back(std::move(row));
  return true;
}

bool read_line(std::string_view key, std::string_view value, Record& record) {
  if (key == "pid") return read_number(value, record.pid);
  if (key == "pidns") return read_number(value, record.pid_namespace);
  if (key == "command") record.command = lease::printable(value);
  if (key == "node") return read_node(value, record);
  return true;
}

}  // namespace

Result<std::string> encode(const Record& record) {
  std::string body = "pid=" + std::to_string(record.pid) + "\npidns=" + std::to_string(record.pid_namespace) +
                     "\ncommand=" + lease::printable(record.command) + "\n";
  for (const NodeRow& row : record.nodes) {
    body += "node=" + row.name;
    for (const int64_t number :
         {row.budget.count(), row.resident.count(), row.peak.count(), row.evictions, row.operators})
      body += " " + std::to_string(number);
    body += "\n";
  }
  std::string file = std::string(kMagic) + std::to_string(body.size()) + " " + hex(fnv1a(body)) + "\n" + body;
  // The written text must be readable.
  if (file.size() > kFileBytes || !decode(file))
    return Status(Code::invalid_argument, std::to_string(record.nodes.size()) +
                                              " nodes cannot be shown: at most " + std::to_string(kMaxNodes) +
                                              ", with names of at most " + std::to_string(kMaxNameLength) +
                                              " characters and counts that are not negative");
  return file;
}

std::optional<Record> decode(std::string_view file) {
  if (!file.starts_with(kMagic)) return std::nullopt;
  file.remove_prefix(kMagic.size());
  // A longer position includes npos: there is no line end.
  if (file.find('\n') > kHeaderSpace) return std::nullopt;
  std::string_view header = cut(file, '\n');
  size_t length = 0;
  uint64_t checksum = 0;
  if (!read_number(cut(header, ' '), length) || !read_number(header, checksum, 16) || length > file.size())
    return std::nullopt;
  std::string_view body = file.substr(0, length);
  if (fnv1a(body) != checksum) return std::nullopt;
  Record record;
  while (!body.empty()) {
    std::string_view line = cut(body, '\n');
    const std::string_view key = cut(line, '=');
    if (!read_line(key, line, record)) return std::nullopt;
  }
  return record;
}

}  // namespace innkeeper::board
