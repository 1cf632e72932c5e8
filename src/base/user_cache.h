// Files that are kept for the user and can be recreated: $XDG_CACHE_HOME/innkeeper, else ~/.cache/innkeeper.
//
// Thread safety: all functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace innkeeper {

// Returns the directory, which may not exist; empty if neither variable is set.
std::string user_cache();

// Suffix of a file that write_whole() has not finished.
inline constexpr std::string_view kDraftEnding = ".new";

// Replaces the file atomically: the text is first written under another name, PATH.XXXXXX.new
// with six characters that no other writer has. Creates the file's directory. Fails with a
// message that names the file.
Status write_whole(const std::string& path, const std::string& text);

}  // namespace innkeeper
