#include "base/types.h"

#include <array>
#include <cstdio>

namespace innkeeper {

std::string to_string(Bytes size) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  const double sign = size.count() < 0 ? -1 : 1;
  double value = sign * static_cast<double>(size.count());
  if (value < 10240) return std::to_string(size.count()) + " B";
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, "%.1f %s", sign * value, kUnits[unit]);
  return text;
}

}  // namespace innkeeper
