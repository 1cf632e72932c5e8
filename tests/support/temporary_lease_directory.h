// A lease directory of a test's own, and machines of plain GPUs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lease/arbiter.h"
#include "support/temporary_directory.h"

namespace innkeeper::test {

// A directory that the destructor removes with its contents.
class TemporaryLeaseDirectory {
 public:
  TemporaryLeaseDirectory() { outer_.open_to_all(); }

  const std::string& path() const { return directory_->path(); }
  const std::shared_ptr<const lease::Directory>& directory() const { return directory_; }
  lease::Arbiter arbiter() const { return lease::Arbiter(directory_); }
  // Number of files, without the lock.
  int files() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      if (entry.path().filename() != lease::kLockName) ++count;
    return count;
  }

 private:
  const TemporaryDirectory outer_{"lease-test"};
  const std::shared_ptr<const lease::Directory> directory_ =
      lease::Directory::open((outer_.path() / "leases").string()).value();
};

inline std::string gpu_name(int index) { return "GPU-" + std::to_string(1000 + index); }

// GPUs without any use.
inline lease::Machine idle_machine(int gpus, Bytes each = GiB(80)) {
  lease::Machine machine;
  for (int i = 0; i < gpus; ++i) {
    lease::Gpu gpu;
    gpu.uuid = gpu_name(i);
    gpu.total = each;
    gpu.free = each;
    gpu.processes_known = true;
    machine.gpus.push_back(gpu);
  }
  return machine;
}

inline lease::Request share(Bytes memory, int count = 1) {
  lease::Request request;
  request.memory = memory;
  request.count = count;
  return request;
}

inline lease::Request whole(int count = 1) {
  lease::Request request;
  request.count = count;
  return request;
}

}  // namespace innkeeper::test
