// Files that are kept for the user and can be made again: $XDG_CACHE_HOME/innkeeper, else
// ~/.cache/innkeeper.
//
// Thread safety: all functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace innkeeper {

// The folder, which need not be there; empty where neither variable says where.
std::string user_cache();

// Ends the name of a file that write_whole() has not finished.
inline constexpr std::string_view kDraftEnding = ".new";

// Replaces the file whole or not at all: it is written under another name first, PATH.XXXXXX.new with six
// characters that no other writer has. Makes its folder. Fails with a message that names the file.
Status write_whole(const std::string& path, const std::string& text);

}  // namespace innkeeper
