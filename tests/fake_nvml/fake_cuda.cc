// A CUDA driver with no more than what telemetry/cuda_view.h asks, to stand where libcuda.so.1 does:
// INNKEEPER_FAKE_CUDA lists the machine's UUIDs in CUDA's own order ("GPU-...,GPU-..."). As in the real one
// nothing answers before cuInit, and cuInit reads CUDA_VISIBLE_DEVICES (indices, or whole UUIDs) once.
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#define FAKE_CUDA extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kInvalidDevice = 101;

std::vector<std::string> words(const char* text) {
  std::vector<std::string> found;
  std::istringstream stream(text == nullptr ? "" : text);
  for (std::string word; std::getline(stream, word, ',');) found.push_back(word);
  return found;
}

bool started = false;
std::vector<std::string> devices;  // by ordinal

}  // namespace

FAKE_CUDA int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (started) return kSuccess;
  started = true;
  const std::vector<std::string> all = words(std::getenv("INNKEEPER_FAKE_CUDA"));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    devices = all;
    return kSuccess;
  }
  for (const std::string& word : words(visible))
    for (size_t i = 0; i < all.size(); ++i)
      if (word == all[i] || word == std::to_string(i)) devices.push_back(all[i]);
  return kSuccess;
}

FAKE_CUDA int cuDeviceGetCount(int* count) {
  if (!started) return kNotInitialized;
  *count = static_cast<int>(devices.size());
  return kSuccess;
}

FAKE_CUDA int cuDeviceGet(int* device, int ordinal) {
  if (!started) return kNotInitialized;
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

FAKE_CUDA int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
  if (!started) return kNotInitialized;
  std::string digits;
  for (const char c : devices.at(static_cast<size_t>(device)).substr(4))
    if (c != '-') digits += c;
  for (size_t i = 0; i < 16; ++i)
    uuid[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return kSuccess;
}
