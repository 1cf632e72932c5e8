// Makes text of unknown origin fit for a terminal: file contents, process names, environment variables, words
// of a command line. It accepts any bytes.
//
// Letters of every script stay. Characters that a terminal obeys, or that change the order of display, become
// escapes (\x1b, \u202e). They are control characters, marks of writing direction, line separators, and bytes
// that are no UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace innkeeper {

enum class Letters : uint8_t {
  all,
  ascii
};  // With `ascii` other letters are escaped too, for a terminal that has only ASCII.

// The result has at most `most` bytes; no character or escape is cut through.
std::string printable(std::string_view text, size_t most, Letters letters = Letters::all);

// Quotes text for a message; longer text than `most` bytes ends in "...".
std::string in_quotes(std::string_view text, size_t most = 400);

// Returns the columns that a character takes on a terminal: 0 for combining marks, 2 for the wide ones of
// East Asia and pictures, else 1.
int columns_of(char32_t character);

// Removes the next character from `text`, which is not empty; an invalid byte is returned as
// 0xDC00 + the byte.
char32_t next_character(std::string_view& text);

}  // namespace innkeeper
