// The C interface for the compiler's code: registration when it is loaded, and kernel launches. There is no
// GPU to run a kernel: PyTorch's operators come from tests/fake_cuda/kernels. Of the kernels that are
// launched by name only those that compute nothing are known.
#include <cstring>
#include <unordered_map>
#include <vector>

#include "runtime/call.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

std::unordered_map<const void*, const char*>& names() {
  static auto& it = *new std::unordered_map<const void*, const char*>;
  return it;
}

struct Configuration {
  Dim3 grid, block;
  size_t shared;
  StreamHandle stream;
};
thread_local std::vector<Configuration> configurations;

Error launch(const void* function, StreamHandle handle) {
  return call("cudaLaunchKernel", Needs::gpu, [&] {
    Stream* stream = stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    const auto found = names().find(function);
    const char* name = found == names().end() ? "?" : found->second;
    if (strstr(name, "spin_kernel") == nullptr) {
      say("no GPU runs the kernel %s here", name);
      return kNotSupported;
    }
    enqueue(*stream, [] {});
    return kSuccess;
  });
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*,
                            void*, int*) {
  names()[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, StreamHandle stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
Error __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared, StreamHandle* stream) {
  if (configurations.empty()) return kUnknown;
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *stream = last.stream;
  return kSuccess;
}
Error __cudaGetKernel(void** kernel, const void* host) {
  *kernel = const_cast<void*>(host);
  return kSuccess;
}
Error __cudaLaunchKernel(void* kernel, Dim3, Dim3, void**, size_t, StreamHandle stream) {
  return launch(kernel, stream);
}
Error cudaLaunchKernel(const void* kernel, Dim3, Dim3, void**, size_t, StreamHandle stream) {
  return launch(kernel, stream);
}
Error cudaLaunchCooperativeKernel(const void* kernel, Dim3, Dim3, void**, size_t, StreamHandle stream) {
  return launch(kernel, stream);
}
Error cudaLaunchKernelExC(const LaunchConfig* config, const void* kernel, void**) {
  return launch(kernel, config->stream);
}
Error cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {};
  attributes->threads_per_block = 1024;
  attributes->registers = 32;
  attributes->ptx = attributes->binary = 90;
  return kSuccess;
}
Error cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
Error cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return kSuccess;
}
Error cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                             unsigned) {
  *blocks = 2;
  return kSuccess;
}

}  // extern "C"

}  // namespace fake_cuda
