// Reads one GPU by NVML: the queries for each member of Gpu, and the checks that make their
// answers safe to use.
//
// Each answer may be unknown (also as 2^64-1), an older struct, text without an end, or an implausible
// number. The reader passes none of these on.
#pragma once

#include <string>
#include <vector>

#include "telemetry/nvml.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry::nvml {

// Queries one GPU. An answer that shows that the GPU is gone sets `lost`.
class GpuReader {
 public:
  GpuReader(const Library& library, Device device) : library_(library), device_(device) {}

  // Reads UUID, bus id, name, MIG mode and instances. Returns false if the GPU has no identity; why()
  // gives the reason.
  bool read_identity(Gpu& gpu);
  // Reads the values that `wanted` names into `gpu`. `avoid_3`: see third_list_is_broken().
  void read(Wanted wanted, bool avoid_3, Gpu& gpu);

  bool lost() const { return lost_; }
  const std::string& why() const { return why_; }
  Device device() const { return device_; }

 private:
  template <class... Parameters, class... Arguments>
  Code ask_gpu(const char* question, Code (*function)(Parameters...), Arguments... arguments) {
    const Code code = ask(function, arguments...);
    if (code == kGpuIsLost || code == kGpuNotFound) {
      lost_ = true;
      why_ = describe(library_, question, code);
    }
    return code;
  }
  Reading<std::string> text(const char* question, Code (*function)(Device, char*, uint32_t), Device device);
  Reading<uint32_t> number(const char* question, Code (*function)(Device, uint32_t*));
  Reading<uint32_t> number_of(const char* question, Code (*function)(Device, int, uint32_t*), int which);
  std::string bus_id();
  void read_instances(Gpu& gpu);
  Reading<Memory> memory(Device device, bool may_be_unified);
  Reading<Utilization> utilization();
  Reading<Power> power();
  Reading<int> temperature();
  Reading<Clocks> clocks();
  Reading<std::vector<Process>> processes(bool avoid_3, const Gpu& gpu);

  const Library& library_;
  Device device_;
  std::vector<Device> instances_;  // Handles in the order of gpu.instances.
  bool lost_ = false;
  std::string why_;
};

// Returns whether the driver writes longer structs into the third version of the process lists than its
// callers know, as 535.43 to 535.86 do.
bool third_list_is_broken(const std::string& driver_version);

// Returns the machine's memory, for a GPU that has none of its own.
Reading<Memory> machine_memory();

}  // namespace innkeeper::telemetry::nvml
