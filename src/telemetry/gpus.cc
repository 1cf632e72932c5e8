#include "telemetry/gpus.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "telemetry/answers.h"

namespace innkeeper::telemetry::nvml {

namespace {

constexpr uint32_t kMaxInstances = 64;  // Bound on the instances of a GPU, which has at most 7 now.

}  // namespace

Reading<std::string> GpuReader::text(const char* question, Code (*function)(Device, char*, uint32_t),
                                     Device device) {
  std::array<char, kTextSize> buffer = {};
  const Code code = ask_gpu(question, function, device, buffer.data(), kTextSize);
  if (code != kSuccess) return no_reading<std::string>(library_, question, code);
  return clean_text(buffer.data(), buffer.size());
}

Reading<uint32_t> GpuReader::number(const char* question, Code (*function)(Device, uint32_t*)) {
  uint32_t value = 0;
  const Code code = ask_gpu(question, function, device_, &value);
  if (code != kSuccess) return no_reading<uint32_t>(library_, question, code);
  if (value == kNotAvailable32) return Reading<uint32_t>::none(Outcome::not_supported);
  return value;
}

Reading<uint32_t> GpuReader::number_of(const char* question, Code (*function)(Device, int, uint32_t*),
                                       int which) {
  uint32_t value = 0;
  const Code code = ask_gpu(question, function, device_, which, &value);
  if (code != kSuccess) return no_reading<uint32_t>(library_, question, code);
  if (value == kNotAvailable32) return Reading<uint32_t>::none(Outcome::not_supported);
  return value;
}

std::string GpuReader::bus_id() {
  Pci3 newer = {};
  if (ask_gpu("nvmlDeviceGetPciInfo_v3", library_.pci_3, device_, &newer) == kSuccess) {
    return plain_bus_id(clean_text(newer.bus_id, sizeof newer.bus_id));
  }
  Pci2 older = {};
  if (ask_gpu("nvmlDeviceGetPciInfo_v2", library_.pci_2, device_, &older) == kSuccess) {
    return plain_bus_id(clean_text(older.bus_id, sizeof older.bus_id));
  }
  return {};
}

bool GpuReader::read_identity(Gpu& gpu) {
  const Reading<std::string> uuid = text("nvmlDeviceGetUUID", library_.uuid, device_);
  gpu.bus_id = bus_id();  // Read for a lost GPU too: its place is known.
  if (!uuid || !is_uuid(*uuid)) {
    if (why_.empty()) why_ = uuid ? "its UUID is no UUID: \"" + *uuid + "\"" : uuid.text();
    if (why_.empty()) why_ = "it has no UUID";
    return false;
  }
  gpu.uuid = *uuid;
  gpu.name = text("nvmlDeviceGetName", library_.name, device_).value_or("");
  uint32_t mode = 0, pending = 0;
  if (ask_gpu("nvmlDeviceGetMigMode", library_.mig_mode, device_, &mode, &pending) == kSuccess) {
    gpu.mig = mode == 1;
  }
  if (gpu.mig) read_instances(gpu);
  return !lost_;
}

void GpuReader::read_instances(Gpu& gpu) {
  const uint32_t most = number("nvmlDeviceGetMaxMigDeviceCount", library_.mig_count).value_or(0);
  std::vector<std::pair<Instance, Device>> found;
  for (uint32_t i = 0; i < std::min(most, kMaxInstances); ++i) {
    // Slots of instances that were never created, or were destroyed meanwhile, answer "not found".
    Device device = nullptr;
    if (ask(library_.mig_handle, device_, i, &device) != kSuccess) continue;
    Instance instance;
    instance.uuid = text("nvmlDeviceGetUUID", library_.uuid, device).value_or("");
    const auto is_same = [&](const auto& other) { return other.first.uuid == instance.uuid; };
    if (!is_uuid(instance.uuid) || std::any_of(found.begin(), found.end(), is_same)) continue;
    instance.name = text("nvmlDeviceGetName", library_.name, device).value_or("");
    uint32_t id = 0;
    const auto known = [&id](Code code) { return code == kSuccess && id < 1024; };
    if (known(ask(library_.gpu_instance, device, &id))) instance.gpu_instance = static_cast<int>(id);
    if (known(ask(library_.compute_instance, device, &id))) instance.compute_instance = static_cast<int>(id);
    found.emplace_back(std::move(instance), device);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.gpu_instance, a.first.compute_instance) <
           std::pair(b.first.gpu_instance, b.first.compute_instance);
  });
  for (auto& [instance, device] : found) {
    gpu.instances.push_back(std::move(instance));
    instances_.push_back(device);
  }
}

void GpuReader::read(Wanted wanted, bool avoid_3, Gpu& gpu) {
  if (has(wanted, Wanted::memory)) {
    gpu.memory = memory(device_, !gpu.mig);
    for (size_t i = 0; i < instances_.size(); ++i) gpu.instances[i].memory = memory(instances_[i], false);
  }
  if (has(wanted, Wanted::utilization)) gpu.utilization = utilization();
  if (has(wanted, Wanted::power)) gpu.power = power();
  if (has(wanted, Wanted::temperature)) gpu.temperature_c = temperature();
  if (has(wanted, Wanted::clocks)) gpu.clocks = clocks();
  if (has(wanted, Wanted::processes)) gpu.processes = processes(avoid_3, gpu);
}

Reading<Memory> GpuReader::memory(Device device, bool may_be_unified) {
  constexpr const char* kQuestion = "nvmlDeviceGetMemoryInfo";
  Memory2 newer = {};
  newer.version = versioned<Memory2>(2);
  Code code = ask_gpu(kQuestion, library_.memory_2, device, &newer);
  if (code != kSuccess && outcome_of(code) == Outcome::not_supported) {
    // The older function counts the driver's reservation as used: reserved stays 0, and free is right.
    Memory1 older = {};
    code = ask_gpu(kQuestion, library_.memory_1, device, &older);
    newer = {.version = 0, .total = older.total, .reserved = 0, .free = older.free, .used = older.used};
  }
  if (code != kSuccess) {
    if (outcome_of(code) == Outcome::not_supported && may_be_unified) return machine_memory();
    return no_reading<Memory>(library_, kQuestion, code);
  }
  if (newer.total == kNotAvailable64 || newer.free == kNotAvailable64) {
    return Reading<Memory>::none(Outcome::not_supported);
  }
  if (newer.total == 0 || newer.total > kMostMemory) return nonsense<Memory>(kQuestion, newer.total);
  if (newer.free > newer.total) return nonsense<Memory>(kQuestion, newer.free);
  return memory_of(newer.total, newer.reserved == kNotAvailable64 ? 0 : newer.reserved, newer.free);
}

Reading<Memory> machine_memory() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return Reading<Memory>::none(Outcome::error, "/proc/meminfo cannot be read");
  uint64_t total_kib = 0, free_kib = 0;
  std::array<char, 256> line = {};
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line.data(), "MemTotal: %llu", &kib) == 1) total_kib = kib;
    if (std::sscanf(line.data(), "MemAvailable: %llu", &kib) == 1) free_kib = kib;
  }
  std::fclose(file);
  if (total_kib == 0) return Reading<Memory>::none(Outcome::error, "/proc/meminfo has no MemTotal");
  Memory memory = memory_of(total_kib << 10, 0, free_kib << 10);
  memory.unified = true;
  return memory;
}

Reading<Utilization> GpuReader::utilization() {
  constexpr const char* kQuestion = "nvmlDeviceGetUtilizationRates";
  Rates rates = {};
  const Code code = ask_gpu(kQuestion, library_.utilization, device_, &rates);
  if (code != kSuccess) return no_reading<Utilization>(library_, kQuestion, code);
  if (rates.gpu == kNotAvailable32) return Reading<Utilization>::none(Outcome::not_supported);
  if (rates.gpu > 100) return nonsense<Utilization>(kQuestion, rates.gpu);
  return Utilization{.compute_percent = static_cast<int>(rates.gpu),
                     .memory_percent = static_cast<int>(rates.memory > 100 ? 0 : rates.memory)};
}

Reading<Power> GpuReader::power() {
  constexpr const char* kQuestion = "nvmlDeviceGetPowerUsage";
  const Reading<uint32_t> usage = number(kQuestion, library_.power);
  if (!usage) return usage.as<Power>();
  if (*usage > kMostMilliwatts) return nonsense<Power>(kQuestion, *usage);
  Power power{.watts = *usage / 1000.0, .limit_watts = std::nullopt};
  const Reading<uint32_t> limit = number("nvmlDeviceGetEnforcedPowerLimit", library_.power_limit);
  if (limit && *limit > 0 && *limit <= kMostMilliwatts) power.limit_watts = *limit / 1000.0;
  return power;
}

Reading<int> GpuReader::temperature() {
  constexpr const char* kQuestion = "nvmlDeviceGetTemperature";
  const Reading<uint32_t> degrees = number_of(kQuestion, library_.temperature, kSensorGpu);
  if (!degrees) return degrees.as<int>();
  if (*degrees > kMostDegrees) return nonsense<int>(kQuestion, *degrees);
  return static_cast<int>(*degrees);
}

Reading<Clocks> GpuReader::clocks() {
  constexpr const char* kQuestion = "nvmlDeviceGetClockInfo";
  const Reading<uint32_t> sm = number_of(kQuestion, library_.clock, kClockSm);
  const Reading<uint32_t> memory = number_of(kQuestion, library_.clock, kClockMemory);
  if (!sm) return sm.as<Clocks>();
  if (!memory) return memory.as<Clocks>();
  if (*sm > kMostMegahertz || *memory > kMostMegahertz)
    return nonsense<Clocks>(kQuestion, std::max(*sm, *memory));
  uint64_t reasons = 0;  // If the driver cannot tell, no reason is known.
  if (ask_gpu("nvmlDeviceGetCurrentClocksThrottleReasons", library_.clock_reasons, device_, &reasons) !=
      kSuccess)
    reasons = 0;
  return Clocks{.sm_mhz = static_cast<int>(*sm),
                .memory_mhz = static_cast<int>(*memory),
                .slowed = (reasons & kSlowdowns) != 0};
}

}  // namespace innkeeper::telemetry::nvml
