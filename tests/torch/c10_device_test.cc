// A device through c10's interfaces: an exception of PyTorch becomes a Status with its message.
#include "torch/accelerator/c10_device.h"

#include <c10/core/Allocator.h>

#include <exception>

#include "torch/sim_fixture.h"

namespace innkeeper::torch_layer {
namespace {

// An exception without a message, as Python's exceptions appear in C++.
struct Wordless final : std::exception {
  const char* what() const noexcept override { return ""; }
};

struct WordlessMemory final : MemoryOrder {
  c10::DataPtr allocate(size_t, const c10::Stream&) const override { throw Wordless(); }
  bool free_after(Memory&, std::span<const Event>) const override { return false; }
};

TEST_F(SimBackendTest, an_exception_without_a_message_is_named) {
  C10Device device(
      "sim:0", c10::Device(c10::kHPU, 0), c10::DispatchKey::HPU, [] { return Bytes(0); },
      std::make_unique<WordlessMemory>());
  const Result<Memory> memory = device.allocate(Bytes(64));
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), Code::device_failed);
  EXPECT_NE(memory.status().message().find("Wordless"), std::string::npos) << memory.status().message();
}

}  // namespace
}  // namespace innkeeper::torch_layer
