#include "torch/errors.h"

#include <atomic>
#include <cstdlib>
#include <string>

namespace innkeeper::torch_layer {
namespace {

// Error number of this file's exceptions. PyTorch's number is CUDA's; here the message holds the code.
constexpr int32_t kNoNumber = -1;
// Batch-size finders and retry loops recognise an out-of-memory error by these words.
constexpr std::string_view kWordsLookedFor = "CUDA out of memory.";

[[noreturn]] void throw_accelerator_error(const std::string& line) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kNoNumber, line);
}

std::atomic<ThrowOutOfMemory> g_throw_out_of_memory{nullptr};

}  // namespace

void set_throw_out_of_memory(ThrowOutOfMemory function) { g_throw_out_of_memory = function; }

void throw_out_of_memory_of_other_language() {
  if (const ThrowOutOfMemory function = g_throw_out_of_memory) function();
}

void throw_out_of_memory(const std::string& line) {
  const bool has_them =
      line.find(kWordsLookedFor) != std::string::npos;  // An inner operator's error is thrown on.
  TORCH_CHECK_WITH(OutOfMemoryError, false, line,
                   has_them ? "" : " (for what looks for these words: " + std::string(kWordsLookedFor) + ")");
  std::abort();  // Not reached.
}

void throw_status(const Status& status, std::string_view what) {
  const std::string line = what.empty() ? status.message() : std::string(what) + ": " + status.message();
  switch (status.code()) {
    case Code::out_of_memory: throw_out_of_memory(line);
    case Code::invalid_argument: TORCH_CHECK_VALUE(false, line); break;
    case Code::device_failed:
    case Code::device_lost: throw_accelerator_error(line);
    default: TORCH_CHECK(false, line, " (", to_string(status.code()), ")"); break;
  }
  std::abort();  // Not reached: each check above throws.
}

bool names_its_device(const c10::AcceleratorError& error) { return error.get_error_code() == kNoNumber; }

void throw_no_memory(const Status& status) {
  if (status.code() == Code::device_failed || status.code() == Code::device_lost)
    throw_accelerator_error(status.message());
  TORCH_CHECK_WITH(OutOfMemoryError, false, status.message());
  std::abort();  // Not reached.
}

}  // namespace innkeeper::torch_layer
