// Settings of the fake machine from the environment, read once.
//
//   FAKE_CUDA_GPUS=1              number of GPUs
//   FAKE_CUDA_MEMORY=1073741824   bytes of each
//   FAKE_CUDA_OTHERS=0            bytes of each that "other processes" hold
//   FAKE_CUDA_MODE=late           late, early or random:SEED: when work without a waiter runs
//   FAKE_CUDA_PEERS=1             0: GPUs do not reach each other's memory
//   FAKE_CUDA_DRIVER=13000        version that the driver supports; less than the runtime's is too old for it
//   FAKE_CUDA_UNIFIED=0           1: GPUs that share the host's memory
//   FAKE_CUDA_MPS=0               1: behind an MPS server
//   FAKE_CUDA_MIG=0               1: names as of MIG instances
//   FAKE_CUDA_TRACE=0             1: each call on standard error
//   FAKE_CUDA_ABORT=0             1: abort at a violation, where it stands
//   CUDA_VISIBLE_DEVICES          which of them, in which order: indices, or beginnings of UUIDs
#pragma once

#include <cstddef>
#include <string>

namespace fake_cuda {

struct Settings {
  int gpus;
  size_t memory;
  size_t others;
  std::string mode;
  bool peers;
  int driver;
  bool unified;
  bool mps;
  bool mig;
  bool trace;
  bool abort;
  bool has_visible;
  std::string visible;
};

const Settings& settings();

}  // namespace fake_cuda
