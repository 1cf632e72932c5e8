// A CUDA driver with only the functions that innkeeper calls, in the place of libcuda.so.1: the devices
// (telemetry/cuda_view.h) and copies (cli/measure/links.h). INNKEEPER_FAKE_CUDA lists the machine's UUIDs in
// CUDA's own order ("GPU-...,GPU-..."). As in the real one nothing answers before cuInit, and cuInit reads
// CUDA_VISIBLE_DEVICES (indices, or whole UUIDs) once.
//
// Copies are made at once, and take the time of kRates on a clock of their own. INNKEEPER_FAKE_CUDA_PEERS=1:
// GPUs reach each other's memory. INNKEEPER_FAKE_CUDA_ERROR="FUNCTION CODE": that function fails. A wrong
// address, context, stream or event fails; the library reports unreleased memory on standard error at the
// end.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#define FAKE_CUDA extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101,
              kInvalidContext = 201, kAlreadyEnabled = 704, kNotPermitted = 800;

// Seconds of any copy, and bytes per second.
constexpr double kCopyLatency = 10e-6;
constexpr double kToDeviceRate = 50e9, kToHostRate = 40e9, kPeerRate = 200e9, kByHostRate = 20e9;

std::vector<std::string> words(const char* text) {
  std::vector<std::string> found;
  std::istringstream stream(text == nullptr ? "" : text);
  for (std::string word; std::getline(stream, word, ',');) found.push_back(word);
  return found;
}

bool started = false;
std::vector<std::string> devices;  // UUIDs by ordinal.

using Handle = void*;
using Address = unsigned long long;

struct Context {
  int device = 0, users = 0;
  std::set<const Context*> peers = {};
};
struct Thing {  // a stream or an event
  Context* home = nullptr;
  double time = -1;  // Time at which an event was recorded, seconds; -1: not recorded.
};

double now = 0;
std::map<int, Context> contexts;                                // Contexts by device.
std::map<Address, std::pair<size_t, Context*>> device_buffers;  // Allocated device memory with its context.
std::map<void*, size_t> host_buffers;
std::set<Handle> things;
Context* current = nullptr;

struct Accounts {
  ~Accounts() {
    int users = 0;
    for (const auto& [device, context] : contexts) users += context.users;
    if (users == 0 && device_buffers.empty() && host_buffers.empty() && things.empty()) return;
    std::fprintf(stderr, "fake CUDA: left behind %d contexts, %zu and %zu buffers, %zu streams and events\n",
                 users, device_buffers.size(), host_buffers.size(), things.size());
  }
} accounts;

// Code with which the environment orders this function to fail, or 0.
int ordered(const char* function) {
  const char* text = std::getenv("INNKEEPER_FAKE_CUDA_ERROR");
  std::istringstream stream(text == nullptr ? "" : text);
  std::string name;
  int code = 0;
  return stream >> name >> code && name == function ? code : 0;
}

bool inside(Address address, size_t size, const Context* context) {
  const auto found = device_buffers.find(address);
  return found != device_buffers.end() && size <= found->second.first && found->second.second == context;
}
bool inside(const void* data, size_t size) {
  const auto found = host_buffers.find(const_cast<void*>(data));
  return found != host_buffers.end() && size <= found->second;
}
bool here(Handle thing) { return things.count(thing) == 1 && static_cast<Thing*>(thing)->home == current; }

int make(Handle* thing) {
  if (current == nullptr) return kInvalidContext;
  *thing = new Thing{current};
  things.insert(*thing);
  return kSuccess;
}
int unmake(Handle thing) {
  if (things.erase(thing) == 0) return kInvalidValue;
  delete static_cast<Thing*>(thing);
  return kSuccess;
}
int copy(void* to, const void* from, size_t size, double rate) {
  std::memmove(to, from, size);
  now += kCopyLatency + static_cast<double>(size) / rate;
  return kSuccess;
}
void* pointer(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

#define FAIL_AS_ORDERED \
  if (const int code = ordered(__func__); code != 0) return code

FAKE_CUDA int cuInit(unsigned flags) {
  FAIL_AS_ORDERED;
  if (flags != 0) return kInvalidValue;
  if (started) return kSuccess;
  started = true;
  const std::vector<std::string> all = words(std::getenv("INNKEEPER_FAKE_CUDA"));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    devices = all;
    return kSuccess;
  }
  for (const std::string& word : words(visible))
    for (size_t i = 0; i < all.size(); ++i)
      if (word == all[i] || word == std::to_string(i)) devices.push_back(all[i]);
  return kSuccess;
}

FAKE_CUDA int cuDeviceGetCount(int* count) {
  if (!started) return kNotInitialized;
  *count = static_cast<int>(devices.size());
  return kSuccess;
}

FAKE_CUDA int cuDeviceGet(int* device, int ordinal) {
  if (!started) return kNotInitialized;
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

FAKE_CUDA int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
  if (!started) return kNotInitialized;
  std::string digits;
  for (const char c : devices.at(static_cast<size_t>(device)).substr(4))
    if (c != '-') digits += c;
  for (size_t i = 0; i < 16; ++i)
    uuid[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return kSuccess;
}

FAKE_CUDA int cuGetErrorName(int code, const char** name) {
  if (code != kOutOfMemory && code != kNotPermitted) return kInvalidValue;
  *name = code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_NOT_PERMITTED";
  return kSuccess;
}

FAKE_CUDA int cuDevicePrimaryCtxRetain(Handle* context, int device) {
  FAIL_AS_ORDERED;
  if (!started) return kNotInitialized;
  if (device < 0 || device >= static_cast<int>(devices.size())) return kInvalidDevice;
  Context& made = contexts[device];
  made.device = device;
  ++made.users;
  *context = &made;
  return kSuccess;
}

FAKE_CUDA int cuDevicePrimaryCtxRelease_v2(int device) {
  Context& context = contexts[device];
  if (context.users == 0) return kInvalidContext;
  --context.users;
  return kSuccess;
}

FAKE_CUDA int cuCtxSetCurrent(Handle context) {
  FAIL_AS_ORDERED;
  current = static_cast<Context*>(context);
  return current == nullptr || current->users > 0 ? kSuccess : kInvalidContext;
}

FAKE_CUDA int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  FAIL_AS_ORDERED;
  const char* peers = std::getenv("INNKEEPER_FAKE_CUDA_PEERS");
  *can = device != peer && peers != nullptr && std::strcmp(peers, "1") == 0 ? 1 : 0;
  return kSuccess;
}

FAKE_CUDA int cuCtxEnablePeerAccess(Handle peer, unsigned flags) {
  FAIL_AS_ORDERED;
  if (flags != 0 || current == nullptr || peer == current) return kInvalidValue;
  return current->peers.insert(static_cast<Context*>(peer)).second ? kSuccess : kAlreadyEnabled;
}

FAKE_CUDA int cuMemAlloc_v2(Address* address, size_t size) {
  FAIL_AS_ORDERED;
  if (current == nullptr) return kInvalidContext;
  *address = reinterpret_cast<Address>(std::malloc(size));
  device_buffers[*address] = {size, current};
  return kSuccess;
}

FAKE_CUDA int cuMemFree_v2(Address address) {
  if (device_buffers.erase(address) == 0) return kInvalidValue;
  std::free(pointer(address));
  return kSuccess;
}

FAKE_CUDA int cuMemHostAlloc(void** data, size_t size, unsigned flags) {
  FAIL_AS_ORDERED;
  if (flags != 1) return kInvalidValue;  // one buffer for all contexts: portable
  if (current == nullptr) return kInvalidContext;
  *data = std::malloc(size);
  host_buffers[*data] = size;
  return kSuccess;
}

FAKE_CUDA int cuMemFreeHost(void* data) {
  if (current == nullptr || host_buffers.erase(data) == 0) return kInvalidValue;
  std::free(data);
  return kSuccess;
}

FAKE_CUDA int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t size, Handle stream) {
  FAIL_AS_ORDERED;
  if (!here(stream) || !inside(to, size, current) || !inside(from, size)) return kInvalidValue;
  return copy(pointer(to), from, size, kToDeviceRate);
}

FAKE_CUDA int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t size, Handle stream) {
  FAIL_AS_ORDERED;
  if (!here(stream) || !inside(from, size, current) || !inside(to, size)) return kInvalidValue;
  return copy(to, pointer(from), size, kToHostRate);
}

FAKE_CUDA int cuMemcpyPeerAsync(Address to, Handle to_context, Address from, Handle from_context, size_t size,
                                Handle stream) {
  FAIL_AS_ORDERED;
  const auto* source = static_cast<Context*>(from_context);
  const auto* target = static_cast<Context*>(to_context);
  if (!here(stream) || !inside(to, size, target) || !inside(from, size, source)) return kInvalidValue;
  const bool direct = source->peers.count(target) == 1 && target->peers.count(source) == 1;
  return copy(pointer(to), pointer(from), size, direct ? kPeerRate : kByHostRate);
}

FAKE_CUDA int cuStreamCreate(Handle* stream, unsigned flags) {
  FAIL_AS_ORDERED;
  return flags == 1 ? make(stream) : kInvalidValue;
}
FAKE_CUDA int cuStreamDestroy_v2(Handle stream) { return unmake(stream); }

FAKE_CUDA int cuEventCreate(Handle* event, unsigned flags) {
  FAIL_AS_ORDERED;
  return flags == 0 ? make(event) : kInvalidValue;
}
FAKE_CUDA int cuEventDestroy_v2(Handle event) { return unmake(event); }

FAKE_CUDA int cuEventRecord(Handle event, Handle stream) {
  FAIL_AS_ORDERED;
  if (!here(event) || !here(stream)) return kInvalidValue;
  static_cast<Thing*>(event)->time = now;
  return kSuccess;
}

FAKE_CUDA int cuEventSynchronize(Handle event) {
  FAIL_AS_ORDERED;
  return things.count(event) == 1 ? kSuccess : kInvalidValue;
}

FAKE_CUDA int cuEventElapsedTime(float* milliseconds, Handle begin, Handle end) {
  FAIL_AS_ORDERED;
  if (!here(begin) || !here(end)) return kInvalidValue;
  const double from = static_cast<Thing*>(begin)->time, to = static_cast<Thing*>(end)->time;
  if (from < 0 || to < 0) return kInvalidValue;
  *milliseconds = static_cast<float>((to - from) * 1e3);
  return kSuccess;
}
