#include "telemetry/amdsmi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "telemetry/answers.h"

namespace innkeeper::telemetry::amdsmi {

namespace {

// The numbers are the library's major versions, of ROCm 10, 7, 6.4, 6.1 to 6.3 and 6.0, newest first. The
// plain name comes with ROCm's packages, in a directory that the loader often does not know.
constexpr const char* kNames[] = {"libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25",
                                  "libamd_smi.so.24", "libamd_smi.so.23", "libamd_smi.so.1",
                                  "libamd_smi.so"};

void* open_library() {
  if (const char* path = std::getenv("INNKEEPER_AMDSMI"); path != nullptr && *path != '\0')
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  // Searching all directories costs more than a snapshot may, and most machines have no AMD GPU.
  if (access("/sys/module/amdgpu", F_OK) != 0) return nullptr;
  for (const char* name : kNames) {
    if (void* file = dlopen(name, RTLD_LAZY | RTLD_LOCAL); file != nullptr) return file;
  }
  const char* rocm = std::getenv("ROCM_PATH");
  const std::string own = rocm != nullptr && *rocm != '\0' ? rocm : "/opt/rocm";
  for (const std::string& directory : {own + "/lib", own + "/lib64"}) {
    for (const char* name : kNames) {
      if (void* file = dlopen((directory + "/" + name).c_str(), RTLD_LAZY | RTLD_LOCAL); file != nullptr)
        return file;
    }
  }
  return nullptr;
}

Failure not_loaded() {
  const char* reason = dlerror();
  return {Trouble::no_library,
          std::string("AMD SMI cannot be loaded: no AMD driver here, or no ROCm (libamd_smi.so)") +
              (reason == nullptr ? "" : "; " + clean_text(reason, 300))};
}

Failure failed_init(const Library& library, Code code) {
  const std::string text = describe(library, "amdsmi_init", code);
  switch (code) {
    case kDriverNotLoaded:
      return {Trouble::not_loaded, "the AMD kernel driver is not loaded: sudo modprobe amdgpu"};
    case kNoPermission:
      return {Trouble::no_permission,
              "no permission to open the AMD driver: check the rights of /dev/kfd and /dev/dri, and that "
              "this user is in the groups render and video"};
    default: return {Trouble::other, text + ": see dmesg for lines with amdgpu"};
  }
}

// Loads and starts the library.
Failure start(Library& library) {
  dlerror();  // Clears an earlier error of other code.
  // The library is never closed: threads of other code may be inside.
  void* file = open_library();
  if (file == nullptr) return not_loaded();
#define IK_AMDSMI_FIND(member, name, type) \
  library.member = reinterpret_cast<decltype(library.member)>(dlsym(file, name));
  IK_AMDSMI_FUNCTIONS(IK_AMDSMI_FIND)
#undef IK_AMDSMI_FIND
  if (library.init == nullptr || library.sockets == nullptr || library.devices == nullptr ||
      library.place == nullptr) {
    return {Trouble::bad_library,
            "what was loaded as AMD SMI is not AMD SMI: it lacks amdsmi_init or a like function"};
  }
  if (const Code code = ask(library.init, kInitGpus); code != kSuccess) return failed_init(library, code);
  if (ask(library.version, &library.number) != kSuccess) library.number = {};
  return {};
}

}  // namespace

constinit Sessions<Library> sessions(start, nullptr);

Outcome outcome_of(Code code) {
  switch (code) {
    case kNotSupported:
    case kNotYetImplemented:
    case kNoData:
    case kFileNotFound: return Outcome::not_supported;
    case kFailLoadModule:
    case kFailLoadSymbol:
    case kNotInitialized:
    case kDriverNotLoaded: return Outcome::no_driver;
    default: return Outcome::error;
  }
}

std::string describe(const Library& library, const char* question, Code code) {
  const char* words = nullptr;
  if (ask(library.error_string, code, &words) != kSuccess) words = nullptr;
  std::string text = std::string(question) + ": ";
  if (words != nullptr) text += clean_text(words, 200) + " ";
  return text + "(" + std::to_string(code) + ")";
}

}  // namespace innkeeper::telemetry::amdsmi
