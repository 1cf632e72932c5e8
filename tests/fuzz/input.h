// A fuzzer's bytes, taken from the front. An exhausted input gives zeros, so that all bytes are a valid
// input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace innkeeper::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  // A number from 0 to `most`.
  size_t upto(size_t most) {
    size_t value = byte();
    if (most > 0xFF) value = value << 8 | byte();
    if (most > 0xFFFF) value = value << 8 | byte();
    return value % (most + 1);
  }
  template <class T>
  T number() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value = value << 8 | byte();
    return static_cast<T>(value);
  }
  template <class List>
  const auto& one_of(const List& list) {
    return list[upto(std::size(list) - 1)];
  }
  // At most `most` bytes; the byte before them gives the number.
  std::string text(size_t most) {
    const size_t length = upto(most);
    const std::string_view part = rest_.substr(0, length);
    rest_.remove_prefix(part.size());
    return std::string(part);
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// The parts between `separator`s; one part more than separators.
inline std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Whether the text is printable in one line.
inline bool is_one_line(std::string_view text) { return printable(text, SIZE_MAX) == text; }

}  // namespace innkeeper::fuzz
