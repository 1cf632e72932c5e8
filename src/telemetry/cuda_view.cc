#include "telemetry/cuda_view.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <memory>

namespace innkeeper::telemetry {
namespace {

// Part of the CUDA driver's interface, unchanged since its first version.
constexpr int kSuccess = 0;
using DeviceCount = int (*)(int* count);
using DeviceAt = int (*)(int* device, int ordinal);
using DeviceUuid = int (*)(unsigned char uuid[16], int device);
constexpr int kMostOrdinals = 1024;  // A larger number makes no sense.

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::string hexadecimal(const std::array<unsigned char, 16>& bytes) {
  std::string digits;
  for (const unsigned char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    digits += two;
  }
  return digits;
}

// Returns the UUID of the GPU or instance with these digits.
std::string name_of(const std::string& digits, const Snapshot& gpus) {
  if (digits.empty()) return "";
  for (const Gpu& gpu : gpus.gpus) {
    for (const Instance& instance : gpu.instances)
      if (uuid_digits(instance.uuid) == digits) return instance.uuid;
    if (uuid_digits(gpu.uuid) == digits) return gpu.uuid;
  }
  return "";
}

}  // namespace

std::string uuid_digits(std::string_view uuid) {
  if (const size_t prefix = uuid.find('-'); prefix == 3) uuid.remove_prefix(prefix + 1);
  std::string digits;
  for (const char c : uuid) {
    if (c == '-') continue;
    digits += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return digits;
}

std::optional<std::vector<std::string>> cuda_ordinals() {
  const std::unique_ptr<void, CloseLibrary> library(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
  if (library == nullptr) return std::nullopt;
  const auto count_of = find<DeviceCount>(library.get(), "cuDeviceGetCount");
  const auto device_at = find<DeviceAt>(library.get(), "cuDeviceGet");
  // With MIG the second version returns the instance's own UUID, the first version its GPU's.
  auto uuid_of = find<DeviceUuid>(library.get(), "cuDeviceGetUuid_v2");
  if (uuid_of == nullptr) uuid_of = find<DeviceUuid>(library.get(), "cuDeviceGetUuid");
  int count = 0;
  if (count_of == nullptr || count_of(&count) != kSuccess || count < 0 || count > kMostOrdinals)
    return std::nullopt;
  std::vector<std::string> ordinals(static_cast<size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    std::array<unsigned char, 16> uuid{};
    if (device_at == nullptr || uuid_of == nullptr || device_at(&device, ordinal) != kSuccess ||
        uuid_of(uuid.data(), device) != kSuccess)
      continue;
    ordinals[static_cast<size_t>(ordinal)] = hexadecimal(uuid);
  }
  return ordinals;
}

std::optional<std::vector<std::string>> cuda_view(const Snapshot& gpus) {
  std::optional<std::vector<std::string>> ordinals = cuda_ordinals();
  if (!ordinals) return std::nullopt;
  for (std::string& ordinal : *ordinals) ordinal = name_of(ordinal, gpus);
  return ordinals;
}

}  // namespace innkeeper::telemetry
