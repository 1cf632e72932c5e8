#include "queue/sweep.h"

#include <algorithm>

#include "base/lines.h"
#include "lease/record.h"

namespace innkeeper::queue {
namespace {

constexpr std::string_view kIndex = "index";

// The message may contain a user's text, so it is made one line that no terminal obeys.
Status wrong(std::string_view message) { return Status(Code::invalid_argument, lease::printable(message)); }

// Parses the whole of `text` as a number that a sweep may reach.
bool read_term(std::string_view text, int64_t& value) {
  return read_number(text, value) && value <= 1'000'000'000;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Returns whether a shell accepts the text as the name of a variable.
bool is_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

Result<std::vector<int64_t>> parse_array(std::string_view text) {
  const Status form = wrong("an array is written as 0-9 or 1,5,10-20:5, not '" + std::string(text) + "'");
  std::vector<int64_t> indices;
  for (std::string_view part : split(text, ',')) {
    int64_t first = 0, last = 0, stride = 1;
    if (const size_t colon = part.find(':'); colon != std::string_view::npos) {
      if (!read_term(part.substr(colon + 1), stride) || stride == 0) return form;
      part = part.substr(0, colon);
      if (part.find('-') == std::string_view::npos) return form;
    }
    const size_t dash = part.find('-');
    if (!read_term(part.substr(0, dash), first)) return form;
    last = first;
    if (dash != std::string_view::npos && (!read_term(part.substr(dash + 1), last) || last < first))
      return form;
    if ((last - first) / stride + 1 + static_cast<int64_t>(indices.size()) > static_cast<int64_t>(kMaxTasks))
      return wrong("an array has at most " + std::to_string(kMaxTasks) + " jobs");
    for (int64_t index = first; index <= last; index += stride) indices.push_back(index);
  }
  std::vector<int64_t> sorted = indices;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return wrong("an index stands twice in the array '" + std::string(text) + "'");
  return indices;
}

Result<Axis> parse_axis(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals + 1 == text.size())
    return wrong("a sweep is written as lr=0.1,0.01, not '" + std::string(text) + "'");
  Axis axis{std::string(text.substr(0, equals)), {}};
  if (!is_name(axis.name))
    return wrong("a sweep's name has letters, digits and _ only, not '" + axis.name + "'");
  for (const std::string_view value : split(text.substr(equals + 1), ',')) axis.values.emplace_back(value);
  return axis;
}

Result<std::vector<Values>> expand(const std::vector<int64_t>& indices, const std::vector<Axis>& sweep) {
  std::vector<Axis> axes;
  if (!indices.empty()) {
    axes.push_back({std::string(kIndex), {}});
    for (const int64_t index : indices) axes[0].values.push_back(std::to_string(index));
  }
  axes.insert(axes.end(), sweep.begin(), sweep.end());
  size_t total = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!is_name(axes[i].name) || axes[i].values.empty())
      return wrong("a sweep needs a name and values: '" + axes[i].name + "'");
    for (size_t j = 0; j < i; ++j)
      if (axes[j].name == axes[i].name) return wrong("'" + axes[i].name + "' is swept twice");
    if (axes[i].values.size() > kMaxTasks / total)
      return wrong("a sweep has at most " + std::to_string(kMaxTasks) + " jobs");
    total *= axes[i].values.size();
  }
  std::vector<Values> all(total);
  for (size_t task = 0; task < total; ++task) {
    size_t rest = task;
    for (size_t i = axes.size(); i-- > 0; rest /= axes[i].values.size())
      all[task].emplace_back(axes[i].name, axes[i].values[rest % axes[i].values.size()]);
    std::reverse(all[task].begin(), all[task].end());
  }
  return all;
}

std::vector<std::string> substitute(const std::vector<std::string>& command, const Values& values) {
  std::vector<std::string> words;
  for (const std::string& word : command) {
    std::string text;
    for (size_t at = 0; at < word.size();) {
      bool found = false;
      for (const auto& [name, value] : values) {
        if (word[at] != '{' || word.compare(at + 1, name.size(), name) != 0) continue;
        if (at + 1 + name.size() >= word.size() || word[at + 1 + name.size()] != '}') continue;
        text += value;
        at += name.size() + 2;
        found = true;
        break;
      }
      if (!found) text += word[at++];
    }
    words.push_back(std::move(text));
  }
  return words;
}

std::vector<std::string> variables(const Values& values) {
  std::vector<std::string> list;
  for (const auto& [name, value] : values)
    list.push_back((name == kIndex ? "INNKEEPER_ARRAY_INDEX" : name) + "=" + value);
  return list;
}

}  // namespace innkeeper::queue
