#include "runtime/control.h"

#include <memory>
#include <string>

#include "runtime/call.h"
#include "runtime/host_memory.h"
#include "runtime/memory.h"
#include "runtime/report.h"
#include "runtime/stream.h"

using namespace fake_cuda;  // NOLINT(google-build-using-namespace): C functions stand in no namespace

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

extern "C" {

long fake_cuda_violations() { return violations(); }
void fake_cuda_forget_violations() { forget_violations(); }

void fake_cuda_fail(const char* name, long skip, int error, int effect) {
  const Lock lock(machine_mutex());
  order_failure(name, skip, error, static_cast<Effect>(effect));
}
void fake_cuda_cancel_failures() {
  const Lock lock(machine_mutex());
  cancel_failures();
}
long fake_cuda_failures_left() {
  const Lock lock(machine_mutex());
  return failures_left();
}
const char* fake_cuda_failed_call() {
  const Lock lock(machine_mutex());
  static std::string text;
  text = failed_call();
  return text.c_str();
}
void fake_cuda_forget_failed_call() {
  const Lock lock(machine_mutex());
  forget_failed_call();
}
long fake_cuda_calls() {
  const Lock lock(machine_mutex());
  return calls();
}
void fake_cuda_break(int index, int error) {
  const Lock lock(machine_mutex());
  break_gpu(index, error);
}
void fake_cuda_repair(int index) {
  const Lock lock(machine_mutex());
  repair_gpu(index);
}
int fake_cuda_broken(int index) {
  const Lock lock(machine_mutex());
  return gpu(index).broken;
}

void fake_cuda_set_others(int index, size_t bytes) {
  const Lock lock(machine_mutex());
  gpu(index).others = bytes;
}
size_t fake_cuda_used(int index) {
  const Lock lock(machine_mutex());
  return gpu(index).used;
}
size_t fake_cuda_locked_bytes() {
  const Lock lock(machine_mutex());
  return locked_bytes();
}
size_t fake_cuda_pending() {
  const Lock lock(machine_mutex());
  return pending_work();
}
void fake_cuda_run() {
  const Lock lock(machine_mutex());
  run_all();
}
void fake_cuda_set_mode(int mode, unsigned seed) {
  const Lock lock(machine_mutex());
  set_mode(static_cast<Mode>(mode), seed);
}

int fake_cuda_launch(void* handle, void (*run)(void*), void* data, void (*forget)(void*)) {
  const std::shared_ptr<void> kept(data, forget);
  return call("cudaLaunchKernel", Needs::driver, [&] {
    Stream* stream = stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (Error broken = gpu(stream->gpu).broken) return broken;
    enqueue(*stream, [kept, run] { run(kept.get()); });
    return kSuccess;
  });
}
char* fake_cuda_open(const void* data, size_t size) {
  const Lock lock(machine_mutex());
  return bytes_of(data, size, running_gpu(), "a kernel");
}

}  // extern "C"
