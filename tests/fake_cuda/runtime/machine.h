// The GPUs, and the one lock. A thread that waits for a GPU runs the GPU's work under that lock, so a program
// is as deterministic here as its own threads are. The lock is recursive: running work may wait for other
// work.
//
// All of this directory but the C interface (api_*.cc, driver.cc, control.cc) is called with the lock held.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/abi.h"

namespace fake_cuda {

std::recursive_mutex& machine_mutex();

struct Gpu {
  int index = 0;  // Ordinal as this process sees it.
  std::string name;
  std::string uuid;  // "GPU-..." or "MIG-..."
  unsigned char uuid_bytes[16] = {};
  size_t total = 0;
  size_t used = 0;
  size_t others = 0;
  Error broken = kSuccess;  // Sticky error that every call for this GPU returns.
  std::vector<bool> peers;  // GPUs whose memory its kernels may touch.

  size_t left() const { return used + others > total ? 0 : total - used - others; }
};

std::vector<Gpu>& gpus();  // The visible GPUs.
bool is_gpu(int index);
Gpu& gpu(int index);
int& current_gpu();  // Ordinal that the calling thread has chosen.

// From now on every call for the GPU answers `error`. Drops the GPU's work and poisons its memory. Work
// already given to other GPUs completes.
void break_gpu(int index, Error error);
// The fake's own: a GPU that works again, empty-handed. No real one does that without a new process.
void repair_gpu(int index);

}  // namespace fake_cuda
