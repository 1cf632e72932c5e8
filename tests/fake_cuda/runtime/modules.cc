// Modules: kernels that a program compiled for itself (Triton's), loaded by the driver's functions. No GPU
// runs them and nothing is computed. The fake records a launch and checks a GPU's conditions: the function
// was loaded at the GPU whose stream it is launched on, and that is the calling thread's GPU.
#include <cstring>
#include <string>

#include "runtime/call.h"
#include "runtime/memory.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

constexpr int kMaxThreadsPerBlock = 0;  // Attribute of a function.

struct Module {
  int gpu;
};
struct Function {
  std::string name;
  int gpu;
};
struct DriverLaunch {  // CUlaunchConfig, as far as it is read
  unsigned grid[3], block[3], shared;
  StreamHandle stream;
};

Error load(void** module) {
  return call("cuModuleLoadData", Needs::gpu, [&] {
    *module = new Module{current_gpu()};  // Lives as long as the process.
    return kSuccess;
  });
}

Error launch(const Function* function, StreamHandle handle) {
  return call("cuLaunchKernel", Needs::gpu, [&] {
    Stream* stream = stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (function->gpu != stream->gpu || stream->gpu != current_gpu()) {
      violation("%s was loaded at GPU %d and is launched at GPU %d's stream, where GPU %d is the current one",
                function->name.c_str(), function->gpu, stream->gpu, current_gpu());
      return kInvalidHandle;
    }
    say("no GPU runs %s here, launched at GPU %d", function->name.c_str(), stream->gpu);
    enqueue(*stream, [] {});
    return kSuccess;
  });
}

}  // namespace

extern "C" {

Error cuModuleLoad(void** module, const char*) { return load(module); }
Error cuModuleLoadData(void** module, const void*) { return load(module); }
Error cuModuleLoadDataEx(void** module, const void*, unsigned, void*, void*) { return load(module); }
Error cuModuleUnload(void*) { return kSuccess; }
Error cuModuleGetFunction(void** function, const Module* module, const char* name) {
  *function = new Function{name, module->gpu};
  return kSuccess;
}
Error cuFuncGetAttribute(int* value, int which, const Function*) {
  *value = which == kMaxThreadsPerBlock ? 1024 : 0;
  return kSuccess;
}
Error cuFuncSetAttribute(const Function*, int, int) { return kSuccess; }
Error cuFuncSetCacheConfig(const Function*, int) { return kSuccess; }
Error cuCtxGetLimit(size_t* value, int) {
  *value = size_t{1} << 20;
  return kSuccess;
}
Error cuCtxSetLimit(int, size_t) { return kSuccess; }
// Descriptor by which a kernel loads blocks: 128 bytes that its launcher passes on.
Error cuTensorMapEncodeTiled(void* map, int, unsigned, const void* data, const uint64_t*, const uint64_t*,
                             const unsigned*, const unsigned*, int, int, int, int) {
  return call("cuTensorMapEncodeTiled", Needs::nothing, [&] {
    if (gpu_of(data) < 0) return kInvalidValue;
    memset(map, 0, 128);
    return kSuccess;
  });
}
Error cuLaunchKernel(const Function* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, StreamHandle stream, void**, void**) {
  return launch(function, stream);
}
Error cuLaunchKernelEx(const DriverLaunch* config, const Function* function, void**, void**) {
  return launch(function, config->stream);
}

}  // extern "C"

}  // namespace fake_cuda
