// Text for terminals: colours that are there only when wanted, tables that fit a width, bars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace innkeeper::cli {

// How standard output is to be written.
struct Screen {
  bool colours = false;  // a terminal, no NO_COLOR, TERM is not dumb
  bool blocks = false;   // the locale is UTF-8: block characters can be shown
  int width = 0;         // of the terminal in columns; 0: no terminal, no limit
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
  bool right = false;  // numbers
  int priority = 0;    // when the table is too wide the column with the highest goes first; 0: never
  size_t least = 0;    // columns that it takes at least, so that a table keeps its shape as a number grows
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // each has as many cells; render() escapes their text

  // Lines that end in a newline. What does not fit screen.width loses columns, then the last column's end.
  std::string render(const Screen& screen) const;
};

// Other people's text, and what may have some in it, fit for this process's terminal: printable (newlines
// stay), and of ASCII alone unless the locale is UTF-8.
std::string for_terminal(std::string_view text);

// Columns that text takes on a terminal.
size_t columns_of(std::string_view text);
// At most so many columns of it.
std::string_view cut(std::string_view text, size_t columns);

// A bar of `width` columns, `part` of it (0 to 1) full.
std::string bar(const Screen& screen, double part, int width);

// One character for each value (0 to 1), eight heights.
std::string plot(const Screen& screen, const std::vector<double>& values);

}  // namespace innkeeper::cli
