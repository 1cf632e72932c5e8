// Text for terminals: colours where supported, tables that fit a width, bars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace innkeeper::cli {

// Properties of standard output.
struct Screen {
  bool colours = false;  // True: a terminal without NO_COLOR, and TERM is not dumb.
  bool blocks = false;   // True: the locale is UTF-8, so block characters can be shown.
  int width = 0;         // Width of the terminal, columns; 0: no terminal, no limit.
  int height = 0;
};
Screen screen();

enum class Colour : unsigned char { none, bold, dim, red, green, yellow, cyan };
std::string paint(const Screen& screen, Colour colour, std::string_view text);

struct Cell {
  std::string text;
  Colour colour = Colour::none;
};

struct Column {
  std::string head;
  bool right = false;  // True: right-aligned, for numbers.
  int priority = 0;    // Order of removal from a table that is too wide: the highest goes first; 0: never.
  size_t least = 0;    // Minimum width, columns, so that a table keeps its shape as a number grows.
};

struct Table {
  std::vector<Column> columns;
  // Rows have as many cells as there are columns; render() escapes their text.
  std::vector<std::vector<Cell>> rows;

  // Returns lines that end in a newline. A table wider than screen.width loses columns, then its
  // last column's end.
  std::string render(const Screen& screen) const;
};

// Makes text that may come from other users fit for this process's terminal. The result is printable
// (newlines stay), and ASCII unless the locale is UTF-8.
std::string for_terminal(std::string_view text);

// Number of columns that text takes on a terminal.
size_t columns_of(std::string_view text);
// Returns the longest beginning of the text that takes at most `columns` columns.
std::string_view cut(std::string_view text, size_t columns);

// Returns a bar of `width` columns, of which the share `part` (0 to 1) is full.
std::string bar(const Screen& screen, double part, int width);

// Returns one character for each value (0 to 1), in eight heights.
std::string plot(const Screen& screen, const std::vector<double>& values);

}  // namespace innkeeper::cli
