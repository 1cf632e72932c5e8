#include "cli/measure/links.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "cli/measure/measure.h"
#include "telemetry/cuda_view.h"

namespace innkeeper::cli {
namespace {

constexpr int kLatencyCopies = 33;

// Declarations of the CUDA driver's interface, as in cuda.h. Contexts, streams and events are
// opaque pointers.
using Handle = void*;
using Address = unsigned long long;
constexpr int kSuccess = 0, kPeerAccessThere = 704;
constexpr unsigned kPortable = 1, kNonBlocking = 1;

struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*context_retain)(Handle* context, int device) = nullptr;
  int (*context_release)(int device) = nullptr;
  int (*context_set)(Handle context) = nullptr;
  int (*can_access)(int* can, int device, int peer) = nullptr;
  int (*enable_peer)(Handle peer_context, unsigned flags) = nullptr;
  int (*allocate)(Address* address, size_t size) = nullptr;
  int (*free)(Address address) = nullptr;
  int (*allocate_host)(void** data, size_t size, unsigned flags) = nullptr;
  int (*free_host)(void* data) = nullptr;
  int (*to_device)(Address to, const void* from, size_t size, Handle stream) = nullptr;
  int (*to_host)(void* to, Address from, size_t size, Handle stream) = nullptr;
  int (*to_peer)(Address to, Handle to_context, Address from, Handle from_context, size_t size,
                 Handle stream) = nullptr;
  int (*stream_create)(Handle* stream, unsigned flags) = nullptr;
  int (*stream_destroy)(Handle stream) = nullptr;
  int (*event_create)(Handle* event, unsigned flags) = nullptr;
  int (*event_destroy)(Handle event) = nullptr;
  int (*event_record)(Handle event, Handle stream) = nullptr;
  int (*event_wait)(Handle event) = nullptr;
  int (*event_elapsed)(float* milliseconds, Handle begin, Handle end) = nullptr;
  int (*error_name)(int code, const char** name) = nullptr;

  Status check(int code, const char* what) const {
    if (code == kSuccess) return Status::okay();
    const char* name = nullptr;
    const bool known = error_name(code, &name) == kSuccess && name != nullptr;
    return Status(Code::unavailable,
                  std::string("CUDA: ") + what + ": " + (known ? name : std::to_string(code).c_str()));
  }
};

// The library stays loaded, because unloading the driver is not safe.
Result<Driver> load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return Status(Code::unavailable, std::string("no CUDA driver: ") + dlerror());
  Driver driver;
  std::string missing;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  bind(driver.init, "cuInit");
  bind(driver.device_get, "cuDeviceGet");
  bind(driver.context_retain, "cuDevicePrimaryCtxRetain");
  bind(driver.context_release, "cuDevicePrimaryCtxRelease_v2");
  bind(driver.context_set, "cuCtxSetCurrent");
  bind(driver.can_access, "cuDeviceCanAccessPeer");
  bind(driver.enable_peer, "cuCtxEnablePeerAccess");
  bind(driver.allocate, "cuMemAlloc_v2");
  bind(driver.free, "cuMemFree_v2");
  bind(driver.allocate_host, "cuMemHostAlloc");
  bind(driver.free_host, "cuMemFreeHost");
  bind(driver.to_device, "cuMemcpyHtoDAsync_v2");
  bind(driver.to_host, "cuMemcpyDtoHAsync_v2");
  bind(driver.to_peer, "cuMemcpyPeerAsync");
  bind(driver.stream_create, "cuStreamCreate");
  bind(driver.stream_destroy, "cuStreamDestroy_v2");
  bind(driver.event_create, "cuEventCreate");
  bind(driver.event_destroy, "cuEventDestroy_v2");
  bind(driver.event_record, "cuEventRecord");
  bind(driver.event_wait, "cuEventSynchronize");
  bind(driver.event_elapsed, "cuEventElapsedTime");
  bind(driver.error_name, "cuGetErrorName");
  if (!missing.empty()) return Status(Code::unavailable, "the CUDA driver is too old: it has no " + missing);
  return driver;
}

// A GPU's context with the stream, events and buffer for copies. The destructor frees all of them.
struct Gpu {
  const Driver* driver = nullptr;
  std::string uuid;
  int device = -1;
  Handle context = nullptr, stream = nullptr, begin = nullptr, end = nullptr;
  Address buffer = 0;

  Gpu(const Driver& from, std::string name) : driver(&from), uuid(std::move(name)) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    if (context == nullptr) return;
    driver->context_set(context);
    if (buffer != 0) driver->free(buffer);
    if (begin != nullptr) driver->event_destroy(begin);
    if (end != nullptr) driver->event_destroy(end);
    if (stream != nullptr) driver->stream_destroy(stream);
    driver->context_set(nullptr);
    driver->context_release(device);
  }

  Status open(int ordinal, size_t size) {
    IK_RETURN_IF_ERROR(driver->check(driver->device_get(&device, ordinal), "cuDeviceGet"));
    IK_RETURN_IF_ERROR(driver->check(driver->context_retain(&context, device), "cuDevicePrimaryCtxRetain"));
    IK_RETURN_IF_ERROR(driver->check(driver->context_set(context), "cuCtxSetCurrent"));
    IK_RETURN_IF_ERROR(driver->check(driver->stream_create(&stream, kNonBlocking), "cuStreamCreate"));
    IK_RETURN_IF_ERROR(driver->check(driver->event_create(&begin, 0), "cuEventCreate"));
    IK_RETURN_IF_ERROR(driver->check(driver->event_create(&end, 0), "cuEventCreate"));
    return driver->check(driver->allocate(&buffer, size), "cuMemAlloc");
  }
};

// Returns the time of one copy on the GPU's stream, by the GPU's own clock.
Result<double> seconds_of(const Gpu& gpu, const auto& copy) {
  const Driver& driver = *gpu.driver;
  float milliseconds = 0;
  IK_RETURN_IF_ERROR(driver.check(driver.event_record(gpu.begin, gpu.stream), "cuEventRecord"));
  IK_RETURN_IF_ERROR(driver.check(copy(), "copying"));
  IK_RETURN_IF_ERROR(driver.check(driver.event_record(gpu.end, gpu.stream), "cuEventRecord"));
  IK_RETURN_IF_ERROR(driver.check(driver.event_wait(gpu.end), "cuEventSynchronize"));
  IK_RETURN_IF_ERROR(
      driver.check(driver.event_elapsed(&milliseconds, gpu.begin, gpu.end), "cuEventElapsedTime"));
  if (!(milliseconds > 0)) return Status(Code::unavailable, "CUDA: a copy took no time");
  return milliseconds / 1e3;
}

// Measures a link. `copy(size)` enqueues a copy of `size` bytes on the GPU's stream.
Result<LinkRate> measure(const Gpu& gpu, std::string from, std::string to, size_t size, const auto& copy) {
  IK_RETURN_IF_ERROR(gpu.driver->check(gpu.driver->context_set(gpu.context), "cuCtxSetCurrent"));
  LinkRate link = {std::move(from), std::move(to)};
  for (int round = 0; round < kRounds; ++round) {
    const Result<double> seconds = seconds_of(gpu, [&] { return copy(size); });
    if (!seconds.ok()) return seconds.status();
    link.rate = std::max(link.rate, static_cast<double>(size) / seconds.value());
  }
  std::vector<double> times;
  for (int i = 0; i < kLatencyCopies; ++i) {
    const Result<double> seconds = seconds_of(gpu, [&] { return copy(kPageBytes); });
    if (!seconds.ok()) return seconds.status();
    times.push_back(seconds.value());
  }
  std::nth_element(times.begin(), times.begin() + kLatencyCopies / 2, times.end());
  link.latency = times[kLatencyCopies / 2];
  return link;
}

// Lets both contexts access each other's memory, so that copies need not pass through the host.
Result<bool> reach(const Gpu& a, const Gpu& b) {
  const Driver& driver = *a.driver;
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    int can = 0;
    IK_RETURN_IF_ERROR(
        driver.check(driver.can_access(&can, from->device, to->device), "cuDeviceCanAccessPeer"));
    if (can == 0) return false;
    IK_RETURN_IF_ERROR(driver.check(driver.context_set(from->context), "cuCtxSetCurrent"));
    const int enabled = driver.enable_peer(to->context, 0);
    if (enabled != kPeerAccessThere) IK_RETURN_IF_ERROR(driver.check(enabled, "cuCtxEnablePeerAccess"));
  }
  return true;
}

}  // namespace

Result<std::vector<LinkRate>> measure_links(Bytes size, const telemetry::Snapshot& gpus) {
  const Result<Driver> loaded = load();
  if (!loaded.ok()) return loaded.status();
  const Driver& driver = loaded.value();
  IK_RETURN_IF_ERROR(driver.check(driver.init(0), "cuInit"));
  const std::optional<std::vector<std::string>> ordinals = telemetry::cuda_view(gpus);
  if (!ordinals) return Status(Code::unavailable, "CUDA does not say which GPUs it sees");

  const auto count = static_cast<size_t>(size.count());
  std::vector<std::unique_ptr<Gpu>> open;
  for (size_t i = 0; i < ordinals->size(); ++i) {
    if ((*ordinals)[i].empty()) continue;
    open.push_back(std::make_unique<Gpu>(driver, (*ordinals)[i]));
    IK_RETURN_IF_ERROR(open.back()->open(static_cast<int>(i), count));
  }
  std::vector<LinkRate> links;
  if (open.empty()) return links;

  void* data = nullptr;  // The last GPU's context is the current one.
  IK_RETURN_IF_ERROR(driver.check(driver.allocate_host(&data, count, kPortable), "cuMemHostAlloc"));
  const auto free_host = [&driver](void* memory) { driver.free_host(memory); };
  const std::unique_ptr<void, decltype(free_host)> host(data, free_host);

  const auto add = [&](Result<LinkRate> link, bool direct) {
    if (!link.ok()) return link.status();
    links.push_back(std::move(link).value());
    links.back().direct = direct;
    return Status::okay();
  };
  for (const auto& gpu : open) {
    const auto in = [&](size_t n) { return driver.to_device(gpu->buffer, data, n, gpu->stream); };
    const auto out = [&](size_t n) { return driver.to_host(data, gpu->buffer, n, gpu->stream); };
    IK_RETURN_IF_ERROR(add(measure(*gpu, kHostEnd, gpu->uuid, count, in), true));
    IK_RETURN_IF_ERROR(add(measure(*gpu, gpu->uuid, kHostEnd, count, out), true));
  }
  for (size_t i = 0; i < open.size(); ++i) {
    for (size_t j = i + 1; j < open.size(); ++j) {
      const Result<bool> direct = reach(*open[i], *open[j]);
      if (!direct.ok()) return direct.status();
      for (const auto& [from, to] :
           {std::pair(open[i].get(), open[j].get()), std::pair(open[j].get(), open[i].get())}) {
        const auto across = [&driver, from = from, to = to](size_t n) {
          return driver.to_peer(to->buffer, to->context, from->buffer, from->context, n, from->stream);
        };
        IK_RETURN_IF_ERROR(add(measure(*from, from->uuid, to->uuid, count, across), direct.value()));
      }
    }
  }
  return links;
}

}  // namespace innkeeper::cli
