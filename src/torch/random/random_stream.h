// Random streams: one for each experiment, and outside of experiments one for each managed device. Results do
// not depend on the node that computes: CPU kernels draw from the stream itself, a CPUGeneratorImpl.
//
// Users see a stream's Generator, whose device is the managed one. Kernels on the host and on simulated
// accelerators get `kernel_generator`, which is the stream. A stream that was seeded with s gives the numbers
// that the CPU gives after torch.manual_seed(s).
//
// Ways to draw:
// - An operator with a Generator argument gets kernel_generator.
// - aten::dropout and aten::native_dropout, which have none, are composed of such operators (random_ops.cc).
// - PyTorch itself composes factories and random `*_like` operators without a Generator of such operators.
// - The remaining operators with a kernel for CPUs use DefaultGeneratorTurn: the `out=` variants (rand.out,
//   randint_like.out, native_dropout.out and the like).
// - _fused_sdp_choice and _scaled_dot_product_flash_attention_for_cpu are tagged as random but never draw on
//   a CPU.
//
// A CUDA kernel cannot draw from a Mersenne Twister. There each operator gets a Philox generator whose seed
// is the stream's next 64 bits. So the numbers differ from the CPU's but not between GPUs, and the stream's
// state, which users save and restore, is the whole state. Attention with dropout draws from the GPU's
// default generator, which has such a seed during its turn.
//
// Thread safety: as PyTorch's generators: each has a mutex that kernels take.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <memory>

#include "torch/accelerator/philox_state.h"

namespace innkeeper::torch_layer {

class RandomStream {
 public:
  explicit RandomStream(c10::DeviceIndex index);
  const at::Generator& generator() const { return generator_; }                // Device: the managed one.
  const at::Generator& kernel_generator() const { return kernel_generator_; }  // Device: cpu; the same state.

 private:
  at::Generator kernel_generator_;
  at::Generator generator_;
};

// The calling thread's stream: its experiment's, whatever the index, else the device's.
RandomStream& current_stream(c10::DeviceIndex index);
// Gives the calling thread another stream, null for the process's. Returns its previous stream, null for the
// process's.
std::shared_ptr<RandomStream> exchange_stream(std::shared_ptr<RandomStream> stream);
// A generator of a managed device with a stream of its own: torch.Generator(device="managed").
at::Generator new_generator(c10::DeviceIndex index);
// The real generator, device cpu, behind a managed one: one that a user made with
// torch.Generator(device="managed"), or a stream's.
at::Generator kernel_generator_of(const at::Generator& managed);
// The generator for one operator on `device`: the stream itself for CPU kernels, a generator seeded from it
// for CUDA's.
at::Generator generator_on(c10::Device device, const at::Generator& stream);

// For kernels that draw from the default generator of their device although their schema has no Generator.
// During the scope's life the default generator has the stream's state (on a GPU: a state that the stream's
// next 64 bits decide). Scopes take turns in the order of their arrival (a ticket; no lock is held during the
// kernel). The end of a scope restores the user's own state. Scopes of one thread may be nested: an inner one
// does nothing.
//
// A thread that draws from the default generator at the same time, outside of any turn, disturbs the stream.
class DefaultGeneratorTurn {
 public:
  // `device`: the device of the kernel. Simulated accelerators run CPU kernels.
  DefaultGeneratorTurn(RandomStream& stream, c10::Device device);
  ~DefaultGeneratorTurn();
  DefaultGeneratorTurn(const DefaultGeneratorTurn&) = delete;
  DefaultGeneratorTurn& operator=(const DefaultGeneratorTurn&) = delete;

 private:
  void give_back();

  RandomStream& stream_;
  const c10::Device device_;
  at::CPUGeneratorImpl users_;  // Unused on a GPU.
  PhiloxState users_on_gpu_;
};

}  // namespace innkeeper::torch_layer
