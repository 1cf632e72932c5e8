// Elements of the small text files by which processes communicate: numbers, `key=value` lines, a checksum.
// All functions accept any bytes.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace innkeeper {

// FNV-1a, 64 bits: finds equal texts and detects a torn write. It gives no protection against an adversary.
inline uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Returns 16 hexadecimal digits.
inline std::string hex(uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  const std::string text(digits, end);
  return std::string(16 - text.size(), '0') + text;
}

// Parses the whole of `text` as a number that is not negative.
template <class T>
bool read_number(std::string_view text, T& value, int base = 10) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && rest == text.data() + text.size() && !text.empty() && text.front() != '-';
}

// Cuts off the part up to `end`; the whole text if it does not contain `end`.
inline std::string_view cut(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

}  // namespace innkeeper
