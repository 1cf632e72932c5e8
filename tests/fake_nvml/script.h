// The script of a fake library: a text file, named by INNKEEPER_FAKE_NVML for NVML and by
// INNKEEPER_FAKE_AMDSMI for AMD SMI. The library reads it when it starts, and again whenever the GPUs are
// counted and the file has changed, so that a test can change the machine. One statement a line, # begins a
// comment; sizes are bytes or end in k, M, G.
//
//   driver 550.54.15              nvml 12.550.54.15             cuda 12040
//   log PATH                      each call is appended there: name and pid
//   garbage SEED PERCENT          PERCENT of the calls fail or succeed at random, with nonsense
//   answers HEX                   `garbage` takes its decisions and answers from these bytes, then ends
//   topology A B LEVEL            the common ancestor of the GPUs A and B (0, 10, ... 50)
//   error FUNCTION CODE           FUNCTION fails: for all, or for the GPU or instance above it
//   slow FUNCTION MILLISECONDS    FUNCTION takes that time
//   hold FUNCTION                 FUNCTION does not return before the file has changed
//   GPU UUID                      begins a GPU; the following lines are the GPU's
//     bus 00000000:81:00.0        name NVIDIA H200              lost
//     memory TOTAL RESERVED USED  utilization GPU MEMORY        power WATTS [LIMIT]
//     temperature CELSIUS         clocks SM MEMORY              mig MAX_INSTANCES
//     clock_reasons BITS          (why clocks are low)
//     process PID BYTES|unknown [graphics]
//     nvlink GPU|switch COUNT
//   instance UUID GI CI           begins a MIG instance of the GPU above: memory, process, name, error,
//   slow, hold
//
// For AMD SMI: `gpu` has the unique id in hexadecimal digits, or `none`; LEVEL of `topology` is the hops;
// and
//   library 26 0 2 0              its version; structs have that version's layout
//     node N                      the GPU's compute node, as the kernel numbers them
//
// A GPU does not support values that its script lacks. A file that cannot be understood ends the process,
// with a line on standard error: a test must not pass on it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fake_nvml {

struct Memory {
  uint64_t total, reserved, used;
};

struct Process {
  uint32_t pid;
  uint64_t used;
  bool graphics;
};

struct Behaviour {
  std::map<std::string, int> errors;
  std::map<std::string, int> slow_ms;
  std::set<std::string> held;
};

struct Device {
  std::string uuid, bus_id, name = "Fake GPU";
  Behaviour behaviour = {};
  bool lost = false;
  std::optional<Memory> memory = {};
  std::optional<std::pair<uint32_t, uint32_t>> utilization = {};
  std::optional<uint32_t> milliwatts = {}, limit_milliwatts = {}, temperature = {};
  std::optional<std::pair<uint32_t, uint32_t>> clocks = {};
  std::optional<uint64_t> clock_reasons = {};
  std::vector<Process> processes = {};
  std::vector<int> nvlinks = {};                // a GPU's index, or kSwitch
  std::optional<uint32_t> most_instances = {};  // MIG is on
  std::vector<Device> instances = {};
  uint32_t gpu_instance = 0, compute_instance = 0;
  std::optional<uint32_t> node = {};
};

inline constexpr int kSwitch = -1;

struct Script {
  std::string driver = "550.54.15", nvml = "12.550.54.15", log;
  int cuda = 12040;
  std::array<uint32_t, 4> library = {26, 0, 2, 0};
  uint64_t garbage_seed = 0;
  int garbage_percent = 0;
  std::optional<std::string> answers;  // bytes
  Behaviour behaviour;
  std::map<std::pair<int, int>, int> topology;
  std::vector<Device> gpus;
  std::pair<int64_t, int64_t> version;  // Version of the file: changes when the file does.
};

// `variable` names the file; not set: no GPUs.
std::shared_ptr<const Script> read_script(const char* variable);
// The file's version now, to compare with Script::version.
std::pair<int64_t, int64_t> script_version(const char* variable);

}  // namespace fake_nvml
