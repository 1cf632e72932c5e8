// Parses sizes as users write them: "512B", "64KiB", "1.5 GiB", "2TiB". Settings, options and Python use this
// one grammar: NUMBER UNIT, with white space around either.
#pragma once

#include <string_view>

#include "base/status.h"
#include "base/types.h"

namespace innkeeper {

// full: B, KiB, MiB, GiB, TiB. short_too: also K, M, G, T for the same binary units, as Slurm's
// users write them.
enum class SizeUnits { full, short_too };

// NUMBER is decimal digits, perhaps a point and more digits. The result is exact; a fraction of a byte is
// cut off.
// Fails with a half sentence on the error in `text`; callers prefix it with the name of the setting.
Result<Bytes> parse_size(std::string_view text, SizeUnits units = SizeUnits::full);

}  // namespace innkeeper
