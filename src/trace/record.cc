#include "trace/record.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/printable.h"

namespace innkeeper::trace {
namespace {

// No program records numbers beyond these, and sums of them do not overflow.
constexpr int64_t kMostKernels = int64_t{1} << 20;  // Limit for one operator.
constexpr int64_t kMostBytes = int64_t{1} << 44;    // Limit for one block, bytes.
constexpr int64_t kMostBlocks = int64_t{1} << 48;

// Removes and returns the text before the next space.
std::string_view next_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

// Removes a number from the front; none if there is none, or if it is negative.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char letter) {
  if (text.empty() || text.front() != letter) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<Work> read_work(std::string_view word) {
  if (!take(word, '=')) return std::nullopt;
  const auto flops = take_number(word);
  if (!flops || !take(word, ',')) return std::nullopt;
  const auto bytes = take_number(word);
  if (!bytes || !take(word, ',')) return std::nullopt;
  const auto kernels = take_number(word);
  if (!kernels || *kernels > kMostKernels) return std::nullopt;
  const bool is_said = take(word, ',');
  const auto precision = is_said ? cost::precision_named(word) : cost::Precision::bf16;
  if (!precision || (!is_said && !word.empty())) return std::nullopt;
  return Work{static_cast<double>(*flops), static_cast<double>(*bytes), *kernels, *precision};
}

std::optional<RecordedAccess> read_access(std::string_view word) {
  const auto block = take_number(word);
  if (!block || *block >= kMostBlocks || !take(word, ':')) return std::nullopt;
  const auto size = take_number(word);
  if (!size || *size > kMostBytes || word.size() != 1) return std::nullopt;
  const auto kind = static_cast<AccessKind>(word.front());
  if (kind != AccessKind::read && kind != AccessKind::write && !is_born(kind)) return std::nullopt;
  return RecordedAccess{BlockId{static_cast<uint64_t>(*block)}, Bytes(*size), kind};
}

bool read_operation(std::string_view line, AccessRecord& record) {
  RecordEntry entry{.kind = RecordEntry::Kind::operation, .text = std::string(next_word(line))};
  entry.first = record.accesses.size();
  if (entry.text.empty()) return false;
  if (line.starts_with('=')) {
    const auto work = read_work(next_word(line));
    if (!work) return false;
    entry.work = *work;
  }
  while (!line.empty()) {
    const auto access = read_access(next_word(line));
    if (!access) return false;
    record.accesses.push_back(*access);
  }
  entry.count = record.accesses.size() - entry.first;
  record.entries.push_back(std::move(entry));
  return true;
}

bool read_line(std::string_view line, AccessRecord& record) {
  const std::string_view kind = next_word(line);
  if (kind == "O") return read_operation(line, record);
  if (kind == "M") {
    record.entries.push_back({.kind = RecordEntry::Kind::mark, .text = std::string(line)});
    return true;
  }
  const auto block = take_number(line);
  if (kind != "F" || !block || !line.empty()) return false;
  record.entries.push_back(
      {.kind = RecordEntry::Kind::freed, .block = BlockId{static_cast<uint64_t>(*block)}});
  return true;
}

}  // namespace

Result<AccessRecord> parse_record(std::string_view text) {
  AccessRecord record;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !read_line(line, record)) {
      return Status(Code::invalid_argument, "line " + std::to_string(number) + " of the record, " +
                                                in_quotes(line, 80) +
                                                ", is none: expected O, F or M and what belongs to it");
    }
  }
  return record;
}

std::vector<size_t> step_ends(const AccessRecord& record) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < record.entries.size(); ++i)
    if (ends_step(record.entries[i])) ends.push_back(i + 1);
  return ends;
}

}  // namespace innkeeper::trace
