#include "runtime/copy.h"

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/host_memory.h"
#include "runtime/machine.h"
#include "runtime/memory.h"
#include "runtime/report.h"

namespace fake_cuda {
namespace {

constexpr int kAnyGpu = -1;  // the driver reaches every GPU's memory

struct End {
  explicit End(const void* at) : data(at), device(is_device_address(at)), locked(!device && is_locked(at)) {}
  const void* data;
  bool device;
  bool locked;
};

bool is_there(const End& end, size_t size) {
  return !end.device || bytes_of(end.data, size, kAnyGpu, "a copy") != nullptr;
}

// The GPU whose memory is gone by now answers for it.
bool works(const End& end) {
  const int index = end.device ? gpu_of(end.data) : -1;
  return !is_gpu(index) || gpu(index).broken == kSuccess;
}

}  // namespace

Error copy(void* to, const void* from, size_t size, Stream& stream, bool wait) {
  if (size == 0) return kSuccess;
  const End target(to);
  const End source(from);
  for (const End& end : {target, source}) {
    if (!end.device && !lies_well(end.data, size)) {
      violation("a copy of %zu bytes at %p runs over the end of page-locked memory", size, end.data);
      return kInvalidValue;
    }
    if (!is_there(end, size)) {
      gpu(stream.gpu).broken = kIllegalAddress;
      return kIllegalAddress;
    }
    if (!works(end)) return gpu(gpu_of(end.data)).broken;
  }
  const bool pageable_target = !target.device && !target.locked;
  if (pageable_target || (!target.device && !source.device)) wait = true;
  if (wait && stream.capture != nullptr) return kCaptureUnsupported;

  std::shared_ptr<std::vector<char>> staged;
  if (!source.device && !source.locked) {
    const char* begin = static_cast<const char*>(from);
    staged = std::make_shared<std::vector<char>>(begin, begin + size);
  }
  HostRange host;
  if (target.locked) host = {to, size};
  if (source.locked) host = {from, size};
  if (target.locked && stream.capture == nullptr && pending_host(to, size) == nullptr && source.device)
    memset(to, kPoison, size);
  enqueue(
      stream,
      [=] {
        char* there =
            target.device ? bytes_of(to, size, kAnyGpu, "a copy that runs now") : static_cast<char*>(to);
        const char* here = staged          ? staged->data()
                           : source.device ? bytes_of(from, size, kAnyGpu, "a copy that runs now")
                                           : static_cast<const char*>(from);
        if (there != nullptr && here != nullptr) memmove(there, here, size);
      },
      host);
  if (wait) run_stream(stream);
  return gpu(stream.gpu).broken;
}

Error fill(void* data, int value, size_t size, Stream& stream) {
  if (size == 0) return kSuccess;
  if (!is_device_address(data)) {
    memset(data, value, size);
    return kSuccess;
  }
  if (bytes_of(data, size, stream.gpu, "a fill") == nullptr) return kIllegalAddress;
  enqueue(stream, [=, index = stream.gpu] {
    if (char* at = bytes_of(data, size, index, "a fill that runs now")) memset(at, value, size);
  });
  return kSuccess;
}

}  // namespace fake_cuda
