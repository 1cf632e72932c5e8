#include "torch/runtime/device_names.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <array>
#include <string>

#include "torch/memory/handle.h"
#include "torch/runtime/loaded_library.h"

namespace innkeeper::torch_layer {
namespace {

// Mangled: c10::Device::Device(const std::string&), and c10::DeviceTypeName(c10::DeviceType, bool).
constexpr const char* kReads = "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kWrites = "_ZN3c1014DeviceTypeNameB5cxx11ENS_10DeviceTypeEb";

// Reading and writing, with the ABI of a constructor and of a function.
using Read = void (*)(c10::Device*, const std::string&);
using Write = std::string (*)(c10::DeviceType, bool);
Read original_read = nullptr;
Write original_write = nullptr;

void read_name(c10::Device* device, const std::string& text) {
  original_read(device, text);
  if (device->is_cuda()) *device = c10::Device(kManagedType, device->index());
}

std::string write_name(c10::DeviceType type, bool lower_case) {
  return original_write(type == kManagedType ? c10::DeviceType::CUDA : type, lower_case);
}

template <class Function>
Function original(const char* name) {
  void* const library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

// Returns the number of calls' slots that were replaced.
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
  for (const char* soname : {"libtorch_cuda.so", "libc10_cuda.so"}) {  // error messages
    const LoadedLibrary library(soname);
    replace(library, kWrites, reinterpret_cast<void*>(&write_name));
  }
}

}  // namespace innkeeper::torch_layer
