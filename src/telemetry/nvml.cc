#include "telemetry/nvml.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "telemetry/answers.h"

namespace innkeeper::telemetry::nvml {

namespace {

// `reason`: why the first candidate cannot be loaded, if none can.
void* open_library(std::string& reason) {
  const auto open = [&reason](const char* path) {
    void* const file = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    const char* const why = file == nullptr ? dlerror() : nullptr;
    if (reason.empty() && why != nullptr) reason = why;
    return file;
  };
  if (const char* path = std::getenv("INNKEEPER_NVML"); path != nullptr && *path != '\0') return open(path);
  // The plain name exists only with development packages; the last path is where Windows puts the
  // library for Linux.
  for (const char* path : {"libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}) {
    if (void* file = open(path); file != nullptr) return file;
  }
  return nullptr;
}

// Returns "550.54.15" of ".../libnvidia-ml.so.550.54.15", or of the kernel's line about its module.
std::string version_in(std::string_view text) {
  for (size_t start = 0; start < text.size(); ++start) {
    if (text[start] < '0' || text[start] > '9') continue;
    size_t end = text.find_first_not_of("0123456789.", start);
    if (end == std::string_view::npos) end = text.size();
    const auto word = text.substr(start, end - start);
    if (word.size() >= 5 && word.find('.') != std::string_view::npos) return std::string(word);
    start = end;
  }
  return {};
}

std::string mismatch_text(const Library& library) {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  const std::string kernel = version_in(line);
  const std::string ours = version_in(std::filesystem::path(library.path).filename().string());
  return "the NVIDIA library" + (ours.empty() ? "" : " (" + ours + ")") + " and the kernel's driver" +
         (kernel.empty() ? "" : " (" + kernel + ")") +
         " are of different versions, as after an upgrade: reboot, or unload the nvidia modules and load "
         "them again";
}

Failure failed_init(const Library& library, Code code) {
  switch (code) {
    case kVersionMismatch: return {Trouble::version_mismatch, mismatch_text(library)};
    case kDriverNotLoaded:
      return {Trouble::not_loaded, "the NVIDIA kernel driver is not loaded: sudo modprobe nvidia"};
    case kNoPermission:
      return {
          Trouble::no_permission,
          "no permission to open the NVIDIA driver: check the rights of /dev/nvidia* and this user's groups"};
    case kLibraryNotFound:
      return {Trouble::not_loaded, describe(library, "nvmlInit_v2", code) + ": reinstall the NVIDIA driver"};
    default:
      return {Trouble::other, describe(library, "nvmlInit_v2", code) + ": see dmesg for lines with NVRM"};
  }
}

// Loads and starts the library.
Failure start(Library& library) {
  // The library is never closed: it has threads and handlers of its own, and a further start finds it loaded.
  std::string reason;
  void* file = open_library(reason);
  if (file == nullptr) {
    return {Trouble::no_library,
            std::string("NVML cannot be loaded: no NVIDIA driver here, or a container without it (docker run "
                        "--gpus all); ") +
                clean_text(reason.c_str(), 300)};
  }
#define IK_NVML_FIND(member, name, type) \
  library.member = reinterpret_cast<decltype(library.member)>(dlsym(file, name));
  IK_NVML_FUNCTIONS(IK_NVML_FIND)
#undef IK_NVML_FIND
  library.path = path_of(reinterpret_cast<void*>(library.init));
  if (library.init == nullptr || library.shutdown == nullptr || library.count == nullptr ||
      library.handle == nullptr || library.uuid == nullptr) {
    return {Trouble::bad_library,
            "what was loaded as NVML is not NVML: it lacks nvmlInit_v2 or a like function"};
  }
  if (const Code code = ask(library.init); code != kSuccess) return failed_init(library, code);
  return {};
}

void stop(const Library& library) { ask(library.shutdown); }

}  // namespace

constinit Sessions<Library> sessions(start, stop);

Outcome outcome_of(Code code) {
  switch (code) {
    case kNotSupported:
    case kFunctionNotFound:
    case kArgumentVersionMismatch:
    case kDeprecated: return Outcome::not_supported;
    case kUninitialized:
    case kDriverNotLoaded:
    case kLibraryNotFound:
    case kVersionMismatch: return Outcome::no_driver;
    default: return Outcome::error;
  }
}

std::string describe(const Library& library, const char* question, Code code) {
  const char* words = library.error_string == nullptr ? nullptr : library.error_string(code);
  std::string text = std::string(question) + ": ";
  if (words != nullptr) text += clean_text(words, 200) + " ";
  return text + "(" + std::to_string(code) + ")";
}

}  // namespace innkeeper::telemetry::nvml
