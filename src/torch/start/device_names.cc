#include "torch/start/device_names.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "torch/memory/handle.h"
#include "torch/process/loaded_library.h"

namespace innkeeper::torch_layer {
namespace {

// Mangled: c10::Device::Device(const std::string&), and c10::DeviceTypeName(c10::DeviceType, bool).
constexpr const char* kReads = "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kWrites = "_ZN3c1014DeviceTypeNameB5cxx11ENS_10DeviceTypeEb";
// Mangled: torch::processErrorMsg(std::string), through which every error's text passes on its way to Python.
constexpr const char* kErrorText =
    "_ZN5torch15processErrorMsgENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

// Types of the reading and the writing function, with the ABI of a constructor and of a function.
using Read = void (*)(c10::Device*, const std::string&);
using Write = std::string (*)(c10::DeviceType, bool);
using ErrorText = std::string (*)(std::string);
Read original_read = nullptr;
Write original_write = nullptr;
ErrorText original_error_text = nullptr;

void read_name(c10::Device* device, const std::string& text) {
  original_read(device, text);
  if (device->is_cuda()) *device = c10::Device(kManagedType, device->index());
}

std::string write_name(c10::DeviceType type, bool lower_case) {
  return original_write(type == kManagedType ? c10::DeviceType::CUDA : type, lower_case);
}

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Renames one word of an error's text by the text around it. PyTorch forms such words from the backend's
// dispatch keys and from its registered name, which do not change.
std::string error_word(std::string_view before, std::string_view word, std::string_view after) {
  std::string renamed(word);
  if (word == "managed" && before.ends_with("torch.") && after.starts_with('.')) return "cuda";
  // An element of a list of all backends, which contains CUDA too.
  if (before.ends_with(", ")) return renamed;
  for (const std::string_view key : {"PrivateUse1", "PrivateUseOne"}) {
    if (const size_t at = word.find(key); at != word.npos) return renamed.replace(at, key.size(), "CUDA");
  }
  constexpr std::string_view kName = "managed";  // Matches managedFloatType, QuantizedmanagedQInt8Type.
  const size_t at = word.ends_with("Type") ? word.find(kName) : word.npos;
  if (at != word.npos && std::isupper(static_cast<unsigned char>(word[at + kName.size()])) != 0)
    renamed.replace(at, kName.size(), "CUDA");
  return renamed;
}

std::string error_text(std::string said) {
  const std::string_view text = said;
  std::string renamed;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    while (end < text.size() && is_of_word(text[end])) ++end;
    if (end > begin)
      renamed += error_word(text.substr(0, begin), text.substr(begin, end - begin), text.substr(end));
    else
      renamed += text[end++];
  }
  return original_error_text(std::move(renamed));
}

template <class Function>
Function original(const char* name, const char* soname = "libc10.so") {
  void* const library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

// Returns the number of replaced slots.
size_t replace(const LoadedLibrary& library, const char* name, void* function) {
  size_t replaced = 0;
  for (void** slot : library.slots_of(name)) replaced += library.set(slot, function) ? 1 : 0;
  return replaced;
}

}  // namespace

bool are_devices_called_cuda() { return original_read != nullptr; }

void call_devices_cuda() {
  if (original_read != nullptr) return;
  original_read = original<Read>(kReads);
  original_write = original<Write>(kWrites);
  bool all = original_read != nullptr && original_write != nullptr;
  // libc10 writes names itself, in Device::str(), and reads none.
  for (const char* soname : {"libc10.so", "libtorch_cpu.so", "libtorch_python.so"}) {
    if (!all) break;
    const LoadedLibrary library(soname);
    const bool reads = soname == std::string("libc10.so");
    all = replace(library, kWrites, reinterpret_cast<void*>(&write_name)) > 0 &&
          (replace(library, kReads, reinterpret_cast<void*>(&read_name)) > 0 || reads);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      all,
      "this build of PyTorch does not let the managed device be called cuda: its libraries do not import ",
      kReads, " and ", kWrites);
  for (const char* soname : {"libtorch_cuda.so", "libc10_cuda.so"}) {  // For error messages.
    const LoadedLibrary library(soname);
    replace(library, kWrites, reinterpret_cast<void*>(&write_name));
  }
  constexpr const char* kPython = "libtorch_python.so";
  original_error_text = original<ErrorText>(kErrorText, kPython);
  if (original_error_text != nullptr)
    replace(LoadedLibrary(kPython), kErrorText, reinterpret_cast<void*>(&error_text));
}

}  // namespace innkeeper::torch_layer
