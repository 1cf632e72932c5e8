#include "runtime/settings.h"

#include <cstdlib>

#include "runtime/abi.h"

namespace fake_cuda {
namespace {

size_t number(const char* name, size_t fallback) {
  const char* text = getenv(name);
  return text == nullptr || *text == 0 ? fallback : strtoull(text, nullptr, 0);
}

std::string word(const char* name, const char* fallback) {
  const char* text = getenv(name);
  return text == nullptr ? fallback : text;
}

}  // namespace

const Settings& settings() {
  static const auto& it = *new Settings{
      .gpus = static_cast<int>(number("FAKE_CUDA_GPUS", 1)),
      .memory = number("FAKE_CUDA_MEMORY", size_t{1} << 30),
      .others = number("FAKE_CUDA_OTHERS", 0),
      .mode = word("FAKE_CUDA_MODE", "late"),
      .peers = number("FAKE_CUDA_PEERS", 1) != 0,
      .driver = static_cast<int>(number("FAKE_CUDA_DRIVER", static_cast<size_t>(kVersion))),
      .unified = number("FAKE_CUDA_UNIFIED", 0) != 0,
      .mps = number("FAKE_CUDA_MPS", 0) != 0,
      .mig = number("FAKE_CUDA_MIG", 0) != 0,
      .trace = number("FAKE_CUDA_TRACE", 0) != 0,
      .abort = number("FAKE_CUDA_ABORT", 0) != 0,
      .has_visible = getenv("CUDA_VISIBLE_DEVICES") != nullptr,
      .visible = word("CUDA_VISIBLE_DEVICES", ""),
  };
  return it;
}

}  // namespace fake_cuda
