#include "telemetry/amd_gpus.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "telemetry/answers.h"
#include "telemetry/lists.h"

namespace innkeeper::telemetry::amdsmi {

namespace {

constexpr size_t kMostText = 256;
constexpr uint32_t kMostWatts = kMostMilliwatts / 1000;
// A power cap above this many watts is taken as a number of microwatts.
constexpr uint64_t kLeastMicrowatts = 100'000;

bool is_available(uint32_t number) { return number != kNotAvailable16 && number != kNotAvailable32; }

template <class T>
T first_of(const Buffer& buffer) {
  T value;
  std::memcpy(&value, buffer.bytes, sizeof value);
  return value;
}

// Adds a process. Number 0 means no process. A process without memory is one that this user may not inspect.
void add(std::map<int64_t, Process>& found, uint32_t pid, uint64_t vram) {
  if (pid == 0) return;
  Process& process = found[pid];
  process.pid = pid;
  process.compute = true;
  if (vram == 0 || vram > kMostMemory) return;
  const Bytes bytes(static_cast<int64_t>(vram));
  process.used = process.used ? std::max(*process.used, bytes) : bytes;
}

std::vector<Process> list_of(std::map<int64_t, Process>& found) {
  std::vector<Process> list;
  list.reserve(found.size());
  for (auto& [pid, process] : found) list.push_back(std::move(process));
  return list;
}

}  // namespace

// The text is a UUID of version 1. The order of its digits follows the library's source in ROCm 6 and 7. It
// is the id's highest byte, the partition's number, the model, eight fixed digits (1000 and 80 among them),
// then the id's other bytes.
std::optional<uint64_t> unique_id_of(const std::string& library_uuid) {
  if (library_uuid.size() != 36 || library_uuid[14] != '1') return std::nullopt;
  std::string digits;
  for (size_t i = 0; i < library_uuid.size(); ++i) {
    const char c = library_uuid[i];
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (c != '-') return std::nullopt;
      continue;
    }
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return std::nullopt;
    if (i < 2 || i > 20) digits += c;
  }
  const uint64_t id = std::strtoull(digits.c_str(), nullptr, 16);
  return id == 0 ? std::nullopt : std::optional(id);
}

Reading<std::string> GpuReader::uuid(const std::string& bus_id) {
  constexpr const char* kQuestion = "amdsmi_get_gpu_device_uuid";
  std::array<char, 64> text = {};  // Larger than the size that the library is given.
  uint32_t length = kUuidSize;
  const Code code = ask_gpu(kQuestion, library_.uuid, device_, &length, text.data());
  forbidden_ = code == kNoPermission;
  if (code != kSuccess && outcome_of(code) != Outcome::not_supported)
    return no_reading<std::string>(library_, kQuestion, code);
  if (const auto id = unique_id_of(code == kSuccess ? clean_text(text.data(), text.size()) : "")) {
    std::array<char, 32> uuid = {};
    std::snprintf(uuid.data(), uuid.size(), "GPU-%016llx", static_cast<unsigned long long>(*id));
    return std::string(uuid.data());
  }
  if (bus_id.empty())
    return Reading<std::string>::none(Outcome::error, "it has neither a unique id nor a place");
  std::string uuid = "GPU-XX-" + bus_id;
  std::replace_if(
      uuid.begin(), uuid.end(), [](char c) { return c == ':' || c == '.'; }, '-');
  return uuid;
}

bool GpuReader::read_identity(Gpu& gpu) {
  constexpr const char* kPlace = "amdsmi_get_gpu_device_bdf";
  Place place = 0;
  const Code code = ask_gpu(kPlace, library_.place, device_, &place);
  if (code == kInputOutput) lose(kPlace, code);
  if (code == kSuccess && place >> 16 <= 0xFFFFFFFF) {
    std::array<char, 32> text = {};
    std::snprintf(text.data(), text.size(), "%08x:%02x:%02x.%x", static_cast<unsigned>(place >> 16),
                  static_cast<unsigned>(place >> 8 & 0xFF), static_cast<unsigned>(place >> 3 & 0x1F),
                  static_cast<unsigned>(place & 7));
    gpu.bus_id = text.data();
  }
  if (lost_) return false;
  const Reading<std::string> name = uuid(gpu.bus_id);
  if (!name) {
    if (why_.empty()) why_ = name.text();
    return false;
  }
  gpu.uuid = *name;
  Buffer asic = {};
  if (ask_gpu("amdsmi_get_gpu_asic_info", library_.asic_info, device_, &asic) == kSuccess)
    gpu.name = clean_text(asic.bytes, kMostText);
  KfdInfo kfd = {};
  constexpr uint32_t kMostNodes = 65536;
  if (ask_gpu("amdsmi_get_gpu_kfd_info", library_.kfd_info, device_, &kfd) == kSuccess &&
      kfd.node < kMostNodes) {
    gpu.kfd_node = static_cast<int>(kfd.node);
  }
  return !lost_;
}

void GpuReader::read(Wanted wanted, Gpu& gpu) {
  if (has(wanted, Wanted::memory)) gpu.memory = memory();
  if (has(wanted, Wanted::utilization)) gpu.utilization = utilization();
  if (has(wanted, Wanted::power)) gpu.power = power();
  if (has(wanted, Wanted::temperature)) gpu.temperature_c = temperature();
  if (has(wanted, Wanted::clocks)) gpu.clocks = clocks();
  if (has(wanted, Wanted::processes)) gpu.processes = processes();
}

Reading<Memory> GpuReader::memory() {
  constexpr const char* kTotal = "amdsmi_get_gpu_memory_total";
  constexpr const char* kUsed = "amdsmi_get_gpu_memory_usage";
  uint64_t total = 0, used = 0;
  const char* question = kTotal;
  Code code = ask_gpu(kTotal, library_.memory_total, device_, static_cast<int>(kMemoryVram), &total);
  if (code == kSuccess) {
    question = kUsed;
    code = ask_gpu(kUsed, library_.memory_used, device_, static_cast<int>(kMemoryVram), &used);
  }
  // These values come from the GPU's own files, whatever the GPU does: a GPU that cannot supply
  // them is off the bus.
  if (code == kInputOutput) lose(question, code);
  if (code != kSuccess) return no_reading<Memory>(library_, question, code);
  if (total == 0 || total > kMostMemory) return nonsense<Memory>(kTotal, total);
  if (used > total) return nonsense<Memory>(kUsed, used);
  return memory_of(total, 0, total - used);
}

Reading<Utilization> GpuReader::utilization() {
  constexpr const char* kQuestion = "amdsmi_get_gpu_activity";
  EngineUsage usage = {};
  const Code code = ask_gpu(kQuestion, library_.usage, device_, &usage);
  if (code != kSuccess) return no_reading<Utilization>(library_, kQuestion, code);
  if (!is_available(usage.graphics)) return Reading<Utilization>::none(Outcome::not_supported);
  if (usage.graphics > 100) return nonsense<Utilization>(kQuestion, usage.graphics);
  return Utilization{.compute_percent = static_cast<int>(usage.graphics),
                     .memory_percent = static_cast<int>(usage.memory > 100 ? 0 : usage.memory)};
}

Reading<Power> GpuReader::power() {
  constexpr const char* kQuestion = "amdsmi_get_power_info";
  const uint32_t version = library_.number.first;
  const bool older = version == 23 || version == 24;
  if (!older && version != 26) return Reading<Power>::none(Outcome::not_supported);
  Buffer buffer = {};
  const Code code = ask_gpu(kQuestion, library_.power, device_, &buffer);
  if (code != kSuccess) return no_reading<Power>(library_, kQuestion, code);
  const auto two = [](const auto& info) { return std::pair(info.current, info.average); };
  const auto [current, average] = older ? two(first_of<Power23>(buffer)) : two(first_of<Power26>(buffer));
  const bool has_current = is_available(current) && (current > 0 || !is_available(average));
  if (!has_current && !is_available(average)) return Reading<Power>::none(Outcome::not_supported);
  const uint32_t watts = has_current ? current : average;
  if (watts > kMostWatts) return nonsense<Power>(kQuestion, watts);
  Power power{.watts = static_cast<double>(watts), .limit_watts = std::nullopt};
  PowerCap cap = {};
  if (ask_gpu("amdsmi_get_power_cap_info", library_.power_cap, device_, 0U, &cap) != kSuccess) return power;
  const double limit = cap.cap < kLeastMicrowatts ? double(cap.cap) : double(cap.cap) / 1e6;
  if (limit > 0 && limit <= kMostWatts) power.limit_watts = limit;
  return power;
}

// Reads the edge sensor, as older GPUs have it; newer ones have only the hottest point.
Reading<int> GpuReader::temperature() {
  constexpr const char* kQuestion = "amdsmi_get_temp_metric";
  int64_t degrees = 0;
  Code code = kNotSupported;
  for (const int sensor : {kSensorEdge, kSensorHotspot}) {
    code = ask_gpu(kQuestion, library_.temperature, device_, sensor, static_cast<int>(kTemperatureNow),
                   &degrees);
    if (code == kSuccess) break;
  }
  if (code != kSuccess) return no_reading<int>(library_, kQuestion, code);
  if (degrees < -int64_t{kMostDegrees} || degrees > int64_t{kMostDegrees})
    return nonsense<int>(kQuestion, static_cast<uint64_t>(degrees));
  return static_cast<int>(degrees);
}

Reading<uint32_t> GpuReader::clock(int kind) {
  constexpr const char* kQuestion = "amdsmi_get_clock_info";
  Buffer buffer = {};
  const Code code = ask_gpu(kQuestion, library_.clock, device_, kind, &buffer);
  if (code != kSuccess) return no_reading<uint32_t>(library_, kQuestion, code);
  const auto megahertz = first_of<uint32_t>(buffer);
  if (!is_available(megahertz)) return Reading<uint32_t>::none(Outcome::not_supported);
  if (megahertz > kMostMegahertz) return nonsense<uint32_t>(kQuestion, megahertz);
  return megahertz;
}

Reading<Clocks> GpuReader::clocks() {
  const Reading<uint32_t> graphics = clock(kClockGraphics);
  if (!graphics) return graphics.as<Clocks>();
  const Reading<uint32_t> memory = clock(kClockMemory);
  if (!memory) return memory.as<Clocks>();
  return Clocks{.sm_mhz = static_cast<int>(*graphics), .memory_mhz = static_cast<int>(*memory)};
}

template <class Entry>
Reading<std::vector<Process>> GpuReader::listed_processes() {
  constexpr const char* kQuestion = "amdsmi_get_gpu_process_list";
  std::vector<Entry> list;
  const Code code = fill(
      [&](uint32_t* count, Entry* entries) {
        return ask_gpu(kQuestion, library_.process_list, device_, count, static_cast<void*>(entries));
      },
      kOutOfResources, list);
  if (code != kSuccess) return no_reading<std::vector<Process>>(library_, kQuestion, code);
  std::map<int64_t, Process> found;
  for (const Entry& entry : list) add(found, entry.pid, entry.vram);
  return list_of(found);
}

Reading<std::vector<Process>> GpuReader::numbered_processes() {
  constexpr const char* kQuestion = "amdsmi_get_gpu_process_list";
  std::vector<uint32_t> list;
  const Code code = fill(
      [&](uint32_t* count, uint32_t* entries) {
        return ask_gpu(kQuestion, library_.process_list, device_, count, static_cast<void*>(entries));
      },
      kOutOfResources, list);
  if (code != kSuccess) return no_reading<std::vector<Process>>(library_, kQuestion, code);
  std::map<int64_t, Process> found;
  for (const uint32_t pid : list) {
    Process23 info = {};
    // kNotFound concerns the process, not the GPU: the process may have ended meanwhile.
    const bool known = pid != 0 && ask(library_.process_info, device_, pid, &info) == kSuccess;
    add(found, pid, known ? info.vram : 0);
  }
  return list_of(found);
}

Reading<std::vector<Process>> GpuReader::processes() {
  switch (library_.number.first) {
    case 23:
    case 24: return library_.process_info != nullptr ? numbered_processes() : listed_processes<Process23>();
    case 26: return listed_processes<Process26>();
    default: return Reading<std::vector<Process>>::none(Outcome::not_supported);
  }
}

// GPUs one hop apart have a direct link. Two hops pass through one processor, more through several.
Link read_link(const Library& library, Device a, Device b) {
  uint64_t hops = 0;
  int type = 0;
  constexpr uint64_t kMostHops = 64;
  if (ask(library.link, a, b, &hops, &type) != kSuccess || hops == 0 || hops > kMostHops) return {};
  return {.path = hops == 1 ? Path::xgmi : hops == 2 ? Path::numa_node : Path::machine, .nvlinks = 0};
}

}  // namespace innkeeper::telemetry::amdsmi
