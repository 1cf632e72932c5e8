// A machine with the GPUs that a script names (tests/fake_nvml/script.h), for telemetry and its users: the
// fake library is loaded like the real one. A process has one of each vendor at a time; children inherit
// them. A test sees only the GPUs that it names, never the machine's own.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/environment.h"
#include "support/temporary_directory.h"
#include "telemetry/snapshot.h"

namespace innkeeper::test {

// A fake library in this build: tests/DIRECTORY/FILE.
inline std::filesystem::path fake_library_path(const std::string& fake, const std::string& file) {
  auto directory = std::filesystem::canonical("/proc/self/exe").parent_path();
  for (; directory.has_relative_path(); directory = directory.parent_path()) {
    const auto path = directory / "tests" / fake / file;
    if (std::filesystem::exists(path)) return path;
  }
  std::fprintf(stderr, "%s is not built\n", fake.c_str());
  std::abort();
}

// `old`: the version that lacks the additions of newer ones.
inline std::filesystem::path fake_nvml_path(bool old = false) {
  return fake_library_path("fake_nvml", old ? "old/libnvidia-ml.so.1" : "libnvidia-ml.so.1");
}
inline std::filesystem::path fake_amdsmi_path(bool old = false) {
  return fake_library_path("fake_amdsmi", old ? "old/libamd_smi.so" : "libamd_smi.so");
}

class FakeLibrary {
 public:
  // `old`: a driver of years ago. `quiet`: no log of the calls, for measurements.
  enum Kind { usual, old, quiet, quiet_old };
  ~FakeLibrary() { telemetry::shut_down(); }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;

  // Sets the script for the next snapshot. Writes a new file, so that the library notices.
  void change(const std::string& script) {
    const auto fresh = directory_.path() / "fresh";
    std::ofstream(fresh) << (quiet_ ? "" : "log " + log_path().string() + "\n") << script;
    std::filesystem::rename(fresh, script_path());
  }

  // The library's calls so far, one line "NAME PID" each.
  std::string log() const {
    std::ifstream file(log_path());
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  int calls(const std::string& function, pid_t pid = getpid()) const {
    std::istringstream lines(log());
    std::string name;
    pid_t caller = 0;
    int count = 0;
    while (lines >> name >> caller) count += name == function && caller == pid;
    return count;
  }

 protected:
  // The variables that name the library, its script, and the other vendor's library.
  FakeLibrary(const char* library, const char* script_variable, const char* other,
              const std::filesystem::path& path, const std::string& script, Kind kind)
      : quiet_(kind == quiet || kind == quiet_old) {
    telemetry::shut_down();
    environment_.set(library, path.string());
    environment_.set(script_variable, script_path().string());
    if (std::getenv(other) == nullptr) environment_.set(other, "/nonexistent/no-such-library.so");
    change(script);
  }

 private:
  std::filesystem::path script_path() const { return directory_.path() / "script"; }
  std::filesystem::path log_path() const { return directory_.path() / "log"; }

  const TemporaryDirectory directory_{"innkeeper-gpus"};
  Environment environment_;
  const bool quiet_;
};

// NVIDIA's.
class FakeGpus : public FakeLibrary {
 public:
  explicit FakeGpus(const std::string& script, Kind kind = usual)
      : FakeLibrary("INNKEEPER_NVML", "INNKEEPER_FAKE_NVML", "INNKEEPER_AMDSMI",
                    fake_nvml_path(kind == old || kind == quiet_old), script, kind) {}
};

class FakeAmdGpus : public FakeLibrary {
 public:
  explicit FakeAmdGpus(const std::string& script, Kind kind = usual)
      : FakeLibrary("INNKEEPER_AMDSMI", "INNKEEPER_FAKE_AMDSMI", "INNKEEPER_NVML",
                    fake_amdsmi_path(kind == old || kind == quiet_old), script, kind) {}
};

}  // namespace innkeeper::test
