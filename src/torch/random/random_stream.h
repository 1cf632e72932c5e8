// Random streams: one for each experiment, and outside of them one for each managed device. Results do not
// depend on the node that computes: CPU kernels draw from the stream itself, a CPUGeneratorImpl.
//
// A stream's Generator as users see it has the managed device; kernels on the host and on simulated
// accelerators are handed `kernel_generator`, which is the stream. A stream that was seeded with s gives the
// numbers that the CPU gives after torch.manual_seed(s).
//
// Who draws how: an operator with a Generator argument is handed kernel_generator. aten::dropout and
// aten::native_dropout, which have none, are composed of such operators (random_ops.cc). Factories and random
// `*_like` operators without one are composed by PyTorch itself. What is left and has a kernel for CPUs goes
// through DefaultGeneratorTurn: the `out=` variants (rand.out, randint_like.out, native_dropout.out and the
// like). _fused_sdp_choice and _scaled_dot_product_flash_attention_for_cpu are tagged as random but never
// draw on a CPU.
//
// A CUDA kernel cannot draw from a Mersenne Twister: each operator there gets a Philox generator whose seed
// is the stream's next 64 bits. So the numbers differ from the CPU's but not from card to card, and the
// stream's state, which users save and restore, stays all the state there is. Attention with dropout draws
// from the card's default generator: for its turn that one has such a seed.
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
  const at::Generator& generator() const { return generator_; }                // the managed device
  const at::Generator& kernel_generator() const { return kernel_generator_; }  // device cpu, the same state

 private:
  at::Generator kernel_generator_;
  at::Generator generator_;
};

// The stream of the calling thread: its experiment's, whatever the index, else that of the device.
RandomStream& current_stream(c10::DeviceIndex index);
// Gives the calling thread another stream, null for the process's; returns the one that it had, null for the
// process's.
std::shared_ptr<RandomStream> exchange_stream(std::shared_ptr<RandomStream> stream);
// A generator of a managed device that is a stream of its own: torch.Generator(device="managed").
at::Generator new_generator(c10::DeviceIndex index);
// The real generator behind one that a user made with torch.Generator(device="managed") or got from us:
// device cpu.
at::Generator kernel_generator_of(const at::Generator& managed);
// What one operator on `device` draws from: the stream itself for CPU kernels, a generator seeded from it for
// CUDA's.
at::Generator generator_on(c10::Device device, const at::Generator& stream);

// Kernels that draw from the default generator of the device where they run although their schema has no
// Generator: for the scope's life the default generator has the stream's state (on a card: a state that the
// stream's next 64 bits decide); scopes take turns in the order they came (a ticket, no lock is held across
// the kernel), and the user's own state is put back. Scopes of one thread nest: an inner one does nothing.
//
// What another thread draws from the default generator meanwhile, outside of any turn, disturbs the stream.
class DefaultGeneratorTurn {
 public:
  // `device`: where the kernel runs. Simulated accelerators run CPU kernels.
  DefaultGeneratorTurn(RandomStream& stream, c10::Device device);
  ~DefaultGeneratorTurn();
  DefaultGeneratorTurn(const DefaultGeneratorTurn&) = delete;
  DefaultGeneratorTurn& operator=(const DefaultGeneratorTurn&) = delete;

 private:
  void give_back();

  RandomStream& stream_;
  const c10::Device device_;
  at::CPUGeneratorImpl users_;  // not on a card
  PhiloxState users_on_card_;
};

}  // namespace innkeeper::torch_layer
