#include "torch/cuda/cuda_backend.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "cost/derived_gpu.h"
#include "cost/link_model.h"
#include "device/numa.h"
#include "device/pci_link.h"
#include "torch/cuda/charging_allocator.h"
#include "torch/errors.h"

// Declared here because ATen/cuda/CUDAContextLight.h also needs the headers of cuBLAS and cuSPARSE.
namespace at::cuda {
TORCH_CUDA_CPP_API void clearCublasWorkspaces();
}

namespace innkeeper::torch_layer::cuda_backend {
namespace {

// Kernels that are loaded at their first use, and libraries' own memory, take some hundreds of MiB outside of
// the allocator.
constexpr Bytes kReserve = MiB(512);
constexpr int64_t kReserveShare = 16;
// The caching allocator takes segments of 2 and 20 MiB and of multiples of 2 MiB, and cannot fill them all.
constexpr Bytes kSegmentSpace = MiB(64);
constexpr int64_t kSegmentShare = 16;
constexpr std::string_view kCoherentLink = "NVLink-C2C";
// Index of the caching allocator's counters over all its pools.
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
// Above PyTorch's own priority (0), so that PyTorch does not replace it.
constexpr uint8_t kPriority = 100;

struct GpuMemory {
  Bytes free;
  Bytes total;
};

GpuMemory memory_of(c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard on_gpu(index);
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {Bytes(static_cast<int64_t>(free)), Bytes(static_cast<int64_t>(total))};
}

// At least half of the free memory, so that a small GPU also gets a budget.
Bytes default_budget(Bytes free) {
  const int64_t reserve = std::max(kReserve.count(), free.count() / kReserveShare);
  return round_up(Bytes(std::max({free.count() - reserve, free.count() / 2, kAlignment})));
}

int attribute(cudaDeviceAttr which, c10::DeviceIndex index) {
  int value = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

// Whether the GPU has no memory of its own. (A GPU that reaches the host's memory over a coherent link, as a
// GH200, has its own.)
bool is_integrated(c10::DeviceIndex index) { return attribute(cudaDevAttrIntegrated, index) != 0; }

// The address in the system's form: "0000:3b:00.0".
std::string pci_address(c10::DeviceIndex gpu) {
  std::array<char, 32> address{};
  std::snprintf(address.data(), address.size(), "%04x:%02x:%02x.0",
                static_cast<unsigned>(attribute(cudaDevAttrPciDomainId, gpu)),
                static_cast<unsigned>(attribute(cudaDevAttrPciBusId, gpu)),
                static_cast<unsigned>(attribute(cudaDevAttrPciDeviceId, gpu)));
  return address.data();
}

// The NUMA node of all GPUs, if they share one.
std::optional<int> node_near(std::span<const c10::DeviceIndex> gpus) {
  std::optional<int> common;
  for (const c10::DeviceIndex gpu : gpus) {
    const std::optional<int> near = numa_node_of(pci_address(gpu));
    if (!near || (common && common != near)) return std::nullopt;
    common = near;
  }
  return common;
}

// The UUID in the form of the driver's tools: "GPU-" and 32 hexadecimal digits in five groups.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += digits.data();
  }
  return text;
}

Status refuse(const std::string& what) { return Status(Code::invalid_argument, what); }

// Sets a GPU's budget: by default its free memory, divided among the processes that use it. An integrated
// GPU's budget stays open, because the host uses the same memory.
Status complete(NodeSpec& node, int sharers) {
  const auto index = static_cast<c10::DeviceIndex>(*node.index);
  const int count = c10::cuda::device_count();
  if (index >= count) {
    return refuse("\"" + node.name + "\": this process sees " + std::to_string(count) + " CUDA devices" +
                  (count == 0 ? "" : ", cuda:0 to cuda:" + std::to_string(count - 1)));
  }
  const GpuMemory memory = memory_of(index);
  node.integrated = is_integrated(index);
  if (!node.budget && !node.integrated) node.budget = default_budget(Bytes(memory.free.count() / sharers));
  if (node.budget && *node.budget > memory.total) {
    return refuse("\"" + node.name + "\": a budget of " + to_string(*node.budget) + ", but the GPU has " +
                  to_string(memory.total));
  }
  return {};
}

Status check_backend() {
  const std::string name = caching::get()->name();
  if (name == "native") return {};
  return refuse("PyTorch's CUDA memory comes from \"" + name +
                "\", and room can be made only in front of its native allocator; leave backend out of "
                "PYTORCH_CUDA_ALLOC_CONF and change no allocator");
}

// Makes segments expandable. PyTorch's other segments can be neither split to the byte nor joined. So after
// some evictions and fetches much of a budget lies in pieces that fit no block. A large piece may also take 1
// MiB more than its charge. A program that has set the option keeps its setting.
void let_segments_grow() {
  const std::string set = c10::CachingAllocator::getAllocatorSettings();
  if (set.find("expandable_segments") != std::string::npos) return;
  c10::CachingAllocator::setAllocatorSettings(set + (set.empty() ? "" : ",") + "expandable_segments:True");
}

std::mutex install_mutex;
std::atomic<ChargingAllocator*> installed{nullptr};

void put(caching::CUDAAllocator* allocator) {
  caching::allocator.store(allocator);
  c10::SetAllocator(c10::kCUDA, allocator, kPriority);
}

void restore_at_exit() {
  if (ChargingAllocator* ours = installed.load()) put(&ours->target());
}

}  // namespace

Status resolve(MachineSpec& spec) {
  std::vector<NodeSpec> nodes;
  int sharers = spec.share.count;  // All sharers have the same INNKEEPER_NODES.
  const auto add_all = [&](std::optional<Bytes> budget) {
    const int count = c10::cuda::device_count();
    sharers = spec.share.sharers(count);
    for (const int i : spec.share.gpus(count)) {
      nodes.push_back({.kind = NodeKind::accelerator,
                       .accelerator = kCuda,
                       .name = std::string(kCuda) + ":" + std::to_string(i),
                       .index = i,
                       .budget = budget});
    }
    return count;
  };
  if (spec.automatic) add_all(spec.automatic_budget);
  for (NodeSpec& node : spec.nodes) {
    if (node.accelerator != kCuda || node.index) {
      nodes.push_back(std::move(node));
    } else if (add_all(node.budget) == 0) {
      return refuse(
          "\"cuda\": this process sees no CUDA device; simulated ones work everywhere, as in sim:2x64MiB");
    }
  }
  if (nodes.size() > kMaxNodes) {
    return refuse("more than " + std::to_string(kMaxNodes) +
                  " nodes with all visible GPUs, host included; name fewer, as in cuda:0,cuda:1");
  }
  bool any = false;
  std::optional<GpuMemory> shared;  // Memory that integrated GPUs share with the host.
  for (NodeSpec& node : nodes) {
    if (node.accelerator != kCuda) continue;
    IK_RETURN_IF_ERROR(complete(node, sharers));
    if (node.integrated) shared = memory_of(static_cast<c10::DeviceIndex>(*node.index));
    any = true;
  }
  if (any) IK_RETURN_IF_ERROR(check_backend());
  spec.nodes = std::move(nodes);
  return shared ? part_one_memory(spec, Bytes(shared->free.count() / sharers), shared->total) : Status();
}

Bytes capacity(c10::DeviceIndex index) { return memory_of(index).total; }

cost::GpuModel model(c10::DeviceIndex index) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  constexpr double kKilo = 1e3;  // Clocks are in kHz.
  return cost::model_of({.name = properties.name,
                         .major = attribute(cudaDevAttrComputeCapabilityMajor, index),
                         .minor = attribute(cudaDevAttrComputeCapabilityMinor, index),
                         .multiprocessors = attribute(cudaDevAttrMultiProcessorCount, index),
                         .clock = kKilo * attribute(cudaDevAttrClockRate, index),
                         .memory_clock = kKilo * attribute(cudaDevAttrMemoryClockRate, index),
                         .memory_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, index),
                         .memory = capacity(index)});
}

plan::Speed speed(c10::DeviceIndex index, const cost::GpuModel& gpu) {
  const double memory = gpu.bytes();
  if (is_integrated(index))
    return {memory, memory / 2};  // A copy within one memory reads and writes each byte.
  if (attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables, index) != 0)
    return {memory, cost::link_named(kCoherentLink).value().bandwidth};
  return {memory, pci_link_bandwidth(pci_address(index)).value_or(0)};
}

cost::KeptRates rates_of_today(c10::DeviceIndex index) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  int driver = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  return {.uuid = uuid_text(properties.uuid),
          .name = properties.name,
          .driver = std::to_string(driver),
          .pytorch = TORCH_VERSION,
          .link = pci_link_bandwidth(pci_address(index)).value_or(0)};
}

Bytes cache(c10::DeviceIndex index) { return Bytes(attribute(cudaDevAttrL2CacheSize, index)); }

void install(Accountant* accountant, std::function<Status(NodeId, Bytes)> relief,
             const std::vector<NodeId>& nodes) {
  at::globalContext().lazyInitDevice(c10::kCUDA);
  const std::lock_guard<std::mutex> lock(install_mutex);
  static ChargingAllocator* ours = nullptr;
  if (ours == nullptr) {
    let_segments_grow();
    ours = new ChargingAllocator(*caching::get());
    std::atexit(&restore_at_exit);
  }
  ours->open(accountant, std::move(relief), nodes);
  if (installed.exchange(ours) == nullptr) put(ours);
}

void remove() {
  const std::lock_guard<std::mutex> lock(install_mutex);
  ChargingAllocator* ours = installed.exchange(nullptr);
  if (ours == nullptr) return;
  put(&ours->target());
  ours->close();
}

Bytes live(c10::DeviceIndex index) {
  const ChargingAllocator* ours = installed.load(std::memory_order_acquire);
  return ours == nullptr ? Bytes(0) : ours->live(index);
}

void limit(c10::DeviceIndex index, Bytes budget) {
  at::globalContext().lazyInitDevice(c10::kCUDA);
  const c10::cuda::CUDAGuard on_gpu(index);  // The allocator changes the current device.
  // The budget does not include memory that was allocated before install().
  const Bytes allocated(caching::getDeviceStats(index).allocated_bytes[kAll].current);
  const Bytes uncharged = std::max(allocated - live(index), Bytes(0));
  const Bytes allowed = budget + uncharged + kSegmentSpace + Bytes(budget.count() / kSegmentShare);
  const double share = static_cast<double>(allowed.count()) / static_cast<double>(capacity(index).count());
  try {
    caching::emptyCache();       // Frees cached memory beyond a smaller budget.
  } catch (const c10::Error&) {  // emptyCache() waits for every GPU, and another one may be lost.
    (void)cudaGetLastError();
  }
  caching::setMemoryFraction(std::min(share, 1.0), index);
}

void take(c10::DeviceIndex index, Bytes budget) {
  const c10::cuda::CUDAGuard on_gpu(index);
  const Bytes more = budget - Bytes(caching::getDeviceStats(index).reserved_bytes[kAll].current);
  if (more <= Bytes(0)) return;
  caching::CUDAAllocator& cached = installed.load()->target();
  try {
    cached.raw_delete(cached.raw_alloc(static_cast<size_t>(more.count())));
  } catch (const c10::OutOfMemoryError&) {
    throw_status(Status(Code::out_of_memory,
                        "with INNKEEPER_GROWTH=off the budget of " + to_string(budget) +
                            " of cuda:" + std::to_string(index) + " is taken at once, but the GPU has " +
                            to_string(memory_of(index).free) + " free; name less, as in cuda:20GiB"),
                 "");
  }
}

Slabs::Hooks slab_hooks(std::span<const c10::DeviceIndex> gpus) {
  // A thread of the engine has the first GPU as its current one, which may belong to another process.
  return {.lock =
              [near = node_near(gpus), gpu = gpus.front()](void* data, size_t size) {
                const c10::cuda::CUDAGuard on_gpu(gpu);
                // Before the pages exist; to lock them makes them exist.
                if (near) (void)prefer_numa_node(data, size, *near);
                const cudaError_t error = cudaHostRegister(data, size, cudaHostRegisterPortable);
                if (error == cudaSuccess) return Status();
                (void)cudaGetLastError();  // Otherwise the next check of a kernel finds the error.
                return Status(Code::unavailable, cudaGetErrorString(error));
              },
          .unlock =
              [gpu = gpus.front()](void* data, size_t) {
                const c10::cuda::CUDAGuard on_gpu(gpu);
                if (cudaHostUnregister(data) == cudaSuccess) return true;
                (void)cudaGetLastError();
                return false;
              }};
}

at::Generator generator(c10::DeviceIndex index, uint64_t seed) {
  static thread_local std::array<at::Generator, Ledger::kGpus> mine;
  at::Generator& generator = mine[static_cast<size_t>(index)];
  if (!generator.defined()) generator = at::cuda::detail::createCUDAGenerator(index);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);  // Also resets the offset to 0.
  return generator;
}

PhiloxState exchange_default_generator(c10::DeviceIndex index, PhiloxState state) {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(index);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const PhiloxState before{generator.current_seed(), generator.get_offset()};
  generator.set_current_seed(state.seed);
  generator.set_offset(state.offset);
  return before;
}

void free_workspaces() { at::cuda::clearCublasWorkspaces(); }

bool is_any_captured() {
  const ChargingAllocator* ours = installed.load(std::memory_order_acquire);
  return ours != nullptr && ours->is_captured();
}

void spare_captures(c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard on_gpu(index);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) (void)cudaGetLastError();
}

bool is_capturing(c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard on_gpu(index);
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace innkeeper::torch_layer::cuda_backend
