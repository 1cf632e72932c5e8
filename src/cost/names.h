// Names of hardware as users write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace innkeeper::cost {

// Returns runs of letters and runs of digits, in lower case and without separators: "RTX 4090", "rtx4090",
// and "RTX-4090" are rtx, 4090. "5.0" is 5.
std::vector<std::string> words_of(std::string_view name);

// A name of a table: the key by which its row is found, and its spelling.
struct KnownName {
  std::string key;
  std::string_view name;
};

// Returns half a sentence such as "is no GPU that is known; the nearest are A, B, and C", by the edit
// distance of keys.
std::string not_known(std::string_view what, std::string_view key, std::vector<KnownName> known);

// Returns the parts after "custom:", as {"1", "2"} of "custom:1:2"; nullopt: another name.
std::optional<std::vector<std::string_view>> custom_parts(std::string_view name);

// Returns a number above 0, at most 1e9; nullopt: the text is none.
std::optional<double> positive_number(std::string_view text);

}  // namespace innkeeper::cost
