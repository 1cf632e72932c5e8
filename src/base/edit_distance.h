// The number of letters in which two words differ.
#pragma once

#include <cstddef>
#include <string_view>

namespace innkeeper {

// Returns Levenshtein's distance: insertions, deletions, and changes of one letter.
size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace innkeeper
