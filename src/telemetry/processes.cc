// The process lists of a GPU: three versions of two functions, and one merged list.
#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "telemetry/answers.h"
#include "telemetry/gpus.h"
#include "telemetry/lists.h"

namespace innkeeper::telemetry::nvml {

namespace {

// Processes by pid and instance.
using Found = std::map<std::pair<int64_t, std::string>, Process>;

void add(Found& found, uint32_t pid, uint64_t used, const std::string& instance, bool compute) {
  if (pid == 0) return;  // Number 0 means no process.
  Process& process = found[{pid, instance}];
  process.pid = pid;
  process.instance_uuid = instance;
  (compute ? process.compute : process.graphics) = true;
  // Both lists report the process's whole use. A number beyond any GPU's memory is another
  // driver's "unknown".
  if (used <= kMostMemory) {
    const Bytes bytes(static_cast<int64_t>(used));
    process.used = process.used ? std::max(*process.used, bytes) : bytes;
  }
}

}  // namespace

bool third_list_is_broken(const std::string& driver_version) {
  int major = 0, minor = 0;
  const char* end = driver_version.data() + driver_version.size();
  const auto [point, failure] = std::from_chars(driver_version.data(), end, major);
  if (failure != std::errc{} || point == end || *point != '.') return false;
  std::from_chars(point + 1, end, minor);
  return major == 535 && minor >= 43 && minor <= 86;
}

Reading<std::vector<Process>> GpuReader::processes(bool avoid_3, const Gpu& gpu) {
  using ProcessList2 = Code (*)(Device, uint32_t*, Process2*);
  using ProcessList1 = Code (*)(Device, uint32_t*, Process1*);
  Found found;
  // Reads one list of one device, by the newest version that the library and the driver have; each version
  // has its own struct.
  const auto read_list = [&](const char* question, Device device, const std::string& instance, bool compute,
                             ProcessList2 third, ProcessList2 second, ProcessList1 first) -> Code {
    Code code = kFunctionNotFound;
    for (ProcessList2 function : {avoid_3 && second != nullptr ? nullptr : third, second}) {
      if (function == nullptr) continue;
      std::vector<Process2> list;
      code = fill([&](uint32_t* count,
                      Process2* entries) { return ask_gpu(question, function, device, count, entries); },
                  kInsufficientSize, list);
      for (const Process2& entry : list) add(found, entry.pid, entry.used, instance, compute);
      if (outcome_of(code) != Outcome::not_supported) return code;
    }
    if (first == nullptr) return code;
    std::vector<Process1> list;
    code = fill(
        [&](uint32_t* count, Process1* entries) { return ask_gpu(question, first, device, count, entries); },
        kInsufficientSize, list);
    for (const Process1& entry : list) add(found, entry.pid, entry.used, instance, compute);
    return code;
  };
  const auto read_device = [&](Device device, const std::string& instance) -> Code {
    constexpr const char* kCompute = "nvmlDeviceGetComputeRunningProcesses";
    constexpr const char* kGraphics = "nvmlDeviceGetGraphicsRunningProcesses";
    const Code code = read_list(kCompute, device, instance, true, library_.compute_processes_3,
                                library_.compute_processes_2, library_.compute_processes_1);
    // GPUs without displays do not support the graphics list; the result of the compute list stands.
    read_list(kGraphics, device, instance, false, library_.graphics_processes_3,
              library_.graphics_processes_2, library_.graphics_processes_1);
    return code;
  };
  Code code = kSuccess;
  if (gpu.mig) {
    // A GPU with MIG on reports its list only to privileged callers; each instance reports its own.
    for (size_t i = 0; i < instances_.size(); ++i) {
      const Code one = read_device(instances_[i], gpu.instances[i].uuid);
      if (code == kSuccess) code = one;
    }
  } else {
    code = read_device(device_, "");
  }
  if (code != kSuccess) {
    return no_reading<std::vector<Process>>(library_, "nvmlDeviceGetComputeRunningProcesses", code);
  }
  std::vector<Process> list;
  list.reserve(found.size());
  for (auto& [key, process] : found) list.push_back(std::move(process));
  return list;
}

}  // namespace innkeeper::telemetry::nvml
