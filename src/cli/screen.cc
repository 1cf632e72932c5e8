#include "cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/printable.h"

namespace innkeeper::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // The first variable that is set counts.
    std::string value(variable(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

const char* code(Colour colour) {
  switch (colour) {
    case Colour::none: return "";
    case Colour::bold: return "\033[1m";
    case Colour::dim: return "\033[2m";
    case Colour::red: return "\033[31m";
    case Colour::green: return "\033[32m";
    case Colour::yellow: return "\033[33m";
    case Colour::cyan: return "\033[36m";
  }
  return "";
}

void append_painted(std::string& line, const Screen& screen, Colour colour, std::string_view text) {
  const bool painted = screen.colours && colour != Colour::none && !text.empty();
  if (painted) line += code(colour);
  line += text;
  if (painted) line += "\033[0m";
}

}  // namespace

Screen screen() {
  Screen result;
  result.blocks = utf8_locale();
  if (isatty(STDOUT_FILENO) == 0) return result;
  result.colours = variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    result.width = size.ws_col;
    result.height = size.ws_row;
  }
  if (result.width == 0) result.width = 80;
  if (result.height == 0) result.height = 24;
  return result;
}

std::string paint(const Screen& screen, Colour colour, std::string_view text) {
  std::string painted;
  append_painted(painted, screen, colour, text);
  return painted;
}

std::string for_terminal(std::string_view text) {
  static const Letters letters = utf8_locale() ? Letters::all : Letters::ascii;
  std::string shown;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    shown += printable(line, SIZE_MAX, letters);
    text.remove_prefix(line.size());
    if (text.empty()) break;
    shown += '\n';
    text.remove_prefix(1);
  }
  return shown;
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) columns += static_cast<size_t>(innkeeper::columns_of(next_character(text)));
  return columns;
}

std::string_view cut(std::string_view text, size_t columns) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view before = rest;
    const auto width = static_cast<size_t>(innkeeper::columns_of(next_character(rest)));
    if (width > columns) return text.substr(0, text.size() - before.size());
    columns -= width;
  }
  return text;
}

std::string Table::render(const Screen& screen) const {
  std::vector<std::vector<Cell>> cells = rows;
  for (std::vector<Cell>& row : cells)
    for (Cell& cell : row) cell.text = for_terminal(cell.text);
  std::vector<size_t> widths, shown;
  for (size_t i = 0; i < columns.size(); ++i) {
    size_t width = std::max(columns_of(columns[i].head), columns[i].least);
    for (const auto& row : cells) width = std::max(width, columns_of(row[i].text));
    widths.push_back(width);
    shown.push_back(i);
  }
  const auto total = [&] {
    size_t sum = 0;
    for (const size_t i : shown) sum += widths[i] + 2;
    return sum - std::min<size_t>(sum, 2);
  };
  const size_t limit = screen.width > 0 ? static_cast<size_t>(screen.width) : SIZE_MAX;
  // The last column is text of any length: it is shortened, down to its head's width, before other
  // columns are dropped.
  const auto least = [&] {
    const size_t last = shown.back();
    return total() - (columns[last].right ? 0 : widths[last] - std::min<size_t>(widths[last], 12));
  };
  while (shown.size() > 1 && least() > limit) {
    const auto worst = std::max_element(shown.begin(), shown.end(), [&](size_t a, size_t b) {
      return columns[a].priority < columns[b].priority;
    });
    if (columns[*worst].priority == 0) break;
    shown.erase(worst);
  }
  std::string text;
  const auto line = [&](const std::vector<Cell>& row) {
    const size_t begin = text.size();
    size_t space = limit;
    for (size_t k = 0; k < shown.size() && space > 0; ++k) {
      const Column& column = columns[shown[k]];
      const Cell& cell = row[shown[k]];
      const std::string_view words = cut(cell.text, space);
      const size_t width = std::min(widths[shown[k]], space);
      const size_t gap = width - std::min(width, columns_of(words));
      if (column.right) text.append(gap, ' ');
      append_painted(text, screen, cell.colour, words);
      space -= width;
      if (k + 1 == shown.size()) break;
      if (!column.right) text.append(gap, ' ');
      text.append(std::min<size_t>(space, 2), ' ');
      space -= std::min<size_t>(space, 2);
    }
    while (text.size() > begin && text.back() == ' ') text.pop_back();
    text += '\n';
  };
  std::vector<Cell> heads;
  for (const Column& column : columns) heads.push_back({column.head, Colour::bold});
  line(heads);
  for (const auto& row : cells) line(row);
  return text;
}

std::string bar(const Screen& screen, double part, int width) {
  const double clean = std::isfinite(part) ? std::clamp(part, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(std::lround(clean * width));
  std::string text;
  for (int i = 0; i < width; ++i)
    text += i < full ? (screen.blocks ? "\u2588" : "#") : (screen.blocks ? "\u2591" : ".");
  return text;
}

std::string plot(const Screen& screen, const std::vector<double>& values) {
  static constexpr const char* kBlocks[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                            "\u2585", "\u2586", "\u2587", "\u2588"};
  static constexpr const char* kPlain[] = {" ", "_", "_", ".", "-", "-", "=", "#", "#"};
  std::string text;
  for (const double value : values) {
    const double clean = std::isfinite(value) ? std::clamp(value, 0.0, 1.0) : 0.0;
    // Any positive value shows at least the lowest bar.
    const int height = clean > 0 ? std::max(1, static_cast<int>(std::lround(clean * 8))) : 0;
    text += screen.blocks ? kBlocks[height] : kPlain[height];
  }
  return text;
}

}  // namespace innkeeper::cli
