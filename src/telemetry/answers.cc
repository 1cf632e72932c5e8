#include "telemetry/answers.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/printable.h"

namespace innkeeper::telemetry {

std::string clean_text(const char* text, size_t capacity) {
  return printable({text, strnlen(text, capacity)}, capacity);
}

bool is_uuid(const std::string& text) {
  if (text.size() < 8 || (text.rfind("GPU-", 0) != 0 && text.rfind("MIG-", 0) != 0)) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '/';
  });
}

std::string plain_bus_id(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(text.c_str(), "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) != 4) return {};
  std::array<char, 32> plain = {};
  std::snprintf(plain.data(), plain.size(), "%08x:%02x:%02x.%x", domain, bus, device, function);
  return plain.data();
}

Memory memory_of(uint64_t total, uint64_t reserved, uint64_t free) {
  free = std::min(free, total);
  reserved = std::min(reserved, total - free);
  const auto bytes = [](uint64_t count) { return Bytes(static_cast<int64_t>(count)); };
  return {.total = bytes(total),
          .reserved = bytes(reserved),
          .used = bytes(total - reserved - free),
          .free = bytes(free)};
}

std::string path_of(void* function) {
  Dl_info info = {};
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failure;
  const auto path = std::filesystem::canonical(info.dli_fname, failure);
  return failure ? std::string(info.dli_fname) : path.string();
}

}  // namespace innkeeper::telemetry
