// A machine with the GPUs that a script names (tests/fake_nvml/script.h), for telemetry and what stands on
// it: the fake NVML is loaded as the real one would be. One at a time in a process; children inherit it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "telemetry/snapshot.h"

namespace innkeeper::test {

// The fake library in this build. `old`: the one that lacks what newer versions added.
inline std::filesystem::path fake_nvml_path(bool old = false) {
  auto folder = std::filesystem::canonical("/proc/self/exe").parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const auto fakes = folder / "tests" / "fake_nvml";
    const auto file = (old ? fakes / "old" : fakes) / "libnvidia-ml.so.1";
    if (std::filesystem::exists(file)) return file;
  }
  std::fprintf(stderr, "the fake NVML is not built: target fake_nvml\n");
  std::abort();
}

class FakeGpus {
 public:
  // old: as a driver of years ago. quiet: calls are not logged, for measuring.
  enum Kind { usual, old, quiet };
  explicit FakeGpus(const std::string& script, Kind kind = usual) : quiet_(kind == quiet) {
    std::string pattern = (std::filesystem::temp_directory_path() / "innkeeper-gpus-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    setenv("INNKEEPER_NVML", fake_nvml_path(kind == old).c_str(), 1);
    setenv("INNKEEPER_FAKE_NVML", (folder_ / "script").c_str(), 1);
    telemetry::shut_down();
    change(script);
  }
  ~FakeGpus() {
    telemetry::shut_down();
    unsetenv("INNKEEPER_NVML");
    unsetenv("INNKEEPER_FAKE_NVML");
    std::filesystem::remove_all(folder_);
  }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  // What the next snapshot sees. A file of its own, so that the library notices.
  void change(const std::string& script) {
    const auto fresh = folder_ / "fresh";
    std::ofstream(fresh) << (quiet_ ? "" : "log " + log_path().string() + "\n") << script;
    std::filesystem::rename(fresh, folder_ / "script");
  }

  // The library's calls so far, one "NAME PID" a line.
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

 private:
  std::filesystem::path log_path() const { return folder_ / "log"; }
  std::filesystem::path folder_;
  bool quiet_;
};

}  // namespace innkeeper::test
