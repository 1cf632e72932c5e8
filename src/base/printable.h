// Other people's text made fit for a terminal: file contents, process names, environment variables, words of
// a command line. It takes any bytes.
//
// Letters of every script stay. What a terminal obeys, or what changes the order in which it shows the rest,
// is written as an escape (\x1b, \u202e): control characters, marks of writing direction, separators of
// lines, and bytes that are no UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace innkeeper {

enum class Letters : uint8_t {
  all,
  ascii
};  // ascii: others are escaped, too, for a terminal that has only these

// The line's length is at most `most` bytes; no character or escape is cut through.
std::string printable(std::string_view text, size_t most, Letters letters = Letters::all);

// In quotes, for a message; what is longer than `most` bytes ends in "...".
std::string in_quotes(std::string_view text, size_t most = 400);

// Columns that a character takes on a terminal: 0 for marks that are put on the one before, 2 for the wide
// ones of East Asia and pictures, else 1.
int columns_of(char32_t character);

// Takes the next character off `text`, which is not empty; a byte that begins none as 0xDC00 + the byte.
char32_t next_character(std::string_view& text);

}  // namespace innkeeper
