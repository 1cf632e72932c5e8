#include "base/printable.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace innkeeper {
namespace {

struct Range {
  char32_t first, last;
};

template <size_t N>
bool is_in(const std::array<Range, N>& ranges, char32_t character) {
  return std::any_of(ranges.begin(), ranges.end(), [character](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

// Ranges of Unicode 15: Cc, the bidirectional controls, Zl, Zp, the byte order mark, tags, private use, and
// code points without characters. Surrogate halves stand for bytes that are no UTF-8.
constexpr std::array<Range, 15> kEscaped = {{
    {0x00, 0x1F},
    {0x7F, 0x9F},
    {0x61C, 0x61C},
    {0x200B, 0x200B},
    {0x200E, 0x200F},
    {0x2028, 0x202E},
    {0x2060, 0x206F},
    {0xD800, 0xF8FF},
    {0xFDD0, 0xFDEF},
    {0xFEFF, 0xFEFF},
    {0xFFF0, 0xFFFB},
    {0xFFFE, 0xFFFF},
    {0x1FFFE, 0x1FFFF},
    {0x2FFFE, 0x2FFFF},
    {0xE0000, 0x10FFFF},
}};

constexpr std::array<Range, 13> kWide = {{
    {0x1100, 0x115F},
    {0x2E80, 0x303E},
    {0x3041, 0x4DBF},
    {0x4E00, 0xA4CF},
    {0xA960, 0xA97C},
    {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},
    {0xFF01, 0xFF60},
    {0xFFE0, 0xFFE6},
    {0x1F300, 0x1F64F},
    {0x1F680, 0x1FAFF},
    {0x20000, 0x3FFFD},
}};

// Common combining marks: a missing one only misaligns a column of a table.
constexpr std::array<Range, 24> kOnTheOneBefore = {{
    {0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},   {0x64B, 0x65F},
    {0x6D6, 0x6DC},   {0x900, 0x902},   {0x93C, 0x93C},   {0x941, 0x948},   {0x94D, 0x94D},
    {0x981, 0x981},   {0x9BC, 0x9BC},   {0x9C1, 0x9C4},   {0x9CD, 0x9CD},   {0xE31, 0xE31},
    {0xE34, 0xE3A},   {0xE47, 0xE4E},   {0x200C, 0x200D}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
    {0x20D0, 0x20FF}, {0x302A, 0x302D}, {0x3099, 0x309A}, {0xFE00, 0xFE0F},
}};

std::string escape(char32_t character) {
  char text[16];
  const bool byte = character >= 0xDC80 && character <= 0xDCFF;
  const auto value = static_cast<unsigned>(byte ? character - 0xDC00 : character);
  const char* const form = value <= 0xFF ? "\\x%02x" : value <= 0xFFFF ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof text, form, value);
  return text;
}

}  // namespace

char32_t next_character(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  char32_t character = length < 2 ? lead : lead & (0x7FU >> length);
  bool whole = length > 0 && text.size() >= length;
  for (size_t i = 1; whole && i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    whole = (next & 0xC0U) == 0x80;
    character = character << 6U | (next & 0x3FU);
  }
  const bool surrogate = character >= 0xD800 && character <= 0xDFFF;
  if (!whole || surrogate || character > 0x10FFFF || (length > 1 && character < kLeast[length])) {
    text.remove_prefix(1);
    return 0xDC00 + lead;
  }
  text.remove_prefix(length);
  return character;
}

std::string printable(std::string_view text, size_t most, Letters letters) {
  std::string line;
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t character = next_character(text);
    const bool escaped = is_in(kEscaped, character) || (letters == Letters::ascii && character > 0x7E);
    const std::string shown =
        escaped ? escape(character) : std::string(before.substr(0, before.size() - text.size()));
    if (line.size() + shown.size() > most) break;
    line += shown;
  }
  return line;
}

std::string in_quotes(std::string_view text, size_t most) {
  const std::string whole = printable(text, SIZE_MAX);
  return whole.size() <= most ? "\"" + whole + "\"" : "\"" + printable(text, most) + "...\"";
}

int columns_of(char32_t character) {
  if (character < 0x300) return 1;
  if (is_in(kOnTheOneBefore, character)) return 0;
  return is_in(kWide, character) ? 2 : 1;
}

}  // namespace innkeeper
