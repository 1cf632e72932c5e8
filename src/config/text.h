// Small helpers that the grammars share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/status.h"

namespace innkeeper {

inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Returns the parts between commas, without surrounding spaces. Text of only spaces has no parts.
inline std::vector<std::string_view> split_items(std::string_view text) {
  std::vector<std::string_view> items;
  if (trimmed(text).empty()) return items;
  for (;;) {
    const size_t comma = text.find(',');
    items.push_back(trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

// Parses "on" or "off" as the value of the setting `name`.
inline Result<bool> parse_switch(std::string_view name, std::string_view text) {
  if (text == "on" || text == "off") return text == "on";
  return Status(Code::invalid_argument, std::string(name) + ": " + in_quotes(text) + ": expected on or off");
}

}  // namespace innkeeper
