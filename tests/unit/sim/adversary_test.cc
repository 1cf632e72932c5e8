// The rules of the adversary: for each, a program that breaks it gets poison, and one that keeps it gets the
// data.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "support/accelerator.h"

namespace innkeeper::sim {
namespace {

// Memory of a GPU, and memory of the host that it is copied to or from.
struct Buffers {
  // `in_host`: the value of each byte in the host's memory.
  explicit Buffers(Accelerator& on, int in_host = 0) : gpu(on), data(take(on)) {
    std::memset(host, in_host, kSize);
  }
  Event copy_in() { return gpu.copy(kIn, data, host, kSize, Direction::in); }
  Event copy_out() { return gpu.copy(kOut, host, data, kSize, Direction::out); }
  // The byte that a kernel reads.
  int look_and_free() {
    const int seen = look(gpu, data);
    gpu.free(data);
    return seen;
  }

  Accelerator& gpu;
  unsigned char* const data;
  unsigned char host[kSize];
};

// Copies out bytes that a finished kernel wrote, so that only the copy is under way.
Event copy_out_of_done_kernel(Buffers& buffers) {
  fill(buffers.gpu, buffers.data, 7);
  buffers.gpu.synchronize();
  return buffers.copy_out();
}

void finish(const Event& event) { EXPECT_TRUE(event->synchronize().ok()); }

// Each rule runs `with` or without its wait, and returns the byte that the program gets (7 if it is right).
struct Rule {
  const char* name;
  std::function<int(Accelerator&, Accelerator& peer, bool with)> run;
};

const Rule kRules[] = {
    {"CopyOutWaitsForTheKernel",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu);
       fill(gpu, buffers.data, 7);
       if (with) gpu.wait(kOut, gpu.record(kCompute));
       finish(buffers.copy_out());
       gpu.free(buffers.data);
       return static_cast<int>(buffers.host[9]);
     }},
    {"HostWaitsForTheCopyOut",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu);
       const Event copied = copy_out_of_done_kernel(buffers);
       if (with) finish(copied);
       const int seen = buffers.host[9];
       gpu.synchronize();
       gpu.free(buffers.data);
       return seen;
     }},
    {"KernelWaitsForTheCopyIn",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu, 7);
       const Event copied = buffers.copy_in();
       if (with) gpu.wait(kCompute, copied);
       const int seen = look(gpu, buffers.data);
       gpu.synchronize();
       gpu.free(buffers.data);
       return seen;
     }},
    {"HostKeepsTheSourceOfACopyIn",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu, 7);
       const Event copied = buffers.copy_in();
       if (with) finish(copied);
       std::memset(buffers.host, 1, kSize);
       gpu.wait(kCompute, copied);
       return buffers.look_and_free();
     }},
    {"FreeWaitsForTheCopyOut",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu);
       fill(gpu, buffers.data, 7);
       gpu.wait(kOut, gpu.record(kCompute));
       const Event copied = buffers.copy_out();
       if (with) gpu.wait(kCompute, copied);
       gpu.free(buffers.data);
       finish(copied);
       return static_cast<int>(buffers.host[9]);
     }},
    {"CopyInWaitsForWhatUsedItsMemoryBefore",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu, 7);
       fill(gpu, buffers.data, 1);  // Publishes its result after the copy, unless the copy waits for it.
       if (with) gpu.wait(kIn, gpu.record(kCompute));
       finish(buffers.copy_in());
       return buffers.look_and_free();
     }},
    {"FreeWaitsForTheCopyIn",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu, 1);
       const Event copied = buffers.copy_in();
       if (with) gpu.wait(kCompute, copied);
       gpu.free(buffers.data);
       unsigned char* next = take(gpu);
       EXPECT_EQ(next, buffers.data) << "freed memory is used again at once";
       fill(gpu, next, 7);
       gpu.synchronize(kCompute);
       gpu.synchronize();
       const int seen = next[9];
       gpu.free(next);
       return seen;
     }},
    {"QueueOfOneKernelWaitsForAnother",
     [](Accelerator& gpu, Accelerator&, bool with) {
       const QueueIndex second = gpu.create_queue();
       unsigned char* data = take(gpu);
       fill(gpu, data, 7);
       if (with) gpu.wait(second, gpu.record(kCompute));
       const int seen = look(gpu, data, kSize, second);
       gpu.free(data);
       return seen;
     }},
    {"PeerCopyWaitsForThePeersKernel",
     [](Accelerator& gpu, Accelerator& peer, bool with) {
       unsigned char* source = take(peer);
       Buffers buffers(gpu);
       fill(peer, source, 7);
       if (with) gpu.wait(kIn, peer.record(kCompute));
       gpu.wait(kCompute, gpu.copy(kIn, buffers.data, source, kSize, Direction::peer));
       const int seen = buffers.look_and_free();
       peer.free(source);
       return seen;
     }},
    {"WhoIsGivenMemoryWaitsForTheCopyOutOfIt",
     [](Accelerator& gpu, Accelerator&, bool with) {
       unsigned char next[kSize];
       std::memset(next, 5, kSize);
       Buffers buffers(gpu);
       const Event copied = copy_out_of_done_kernel(buffers);
       gpu.free_after(buffers.data, std::span(&copied, with ? 1 : 0));
       Result<void*> again = gpu.allocate(Bytes(kSize), kIn);
       EXPECT_EQ(again.value(), buffers.data);
       finish(gpu.copy(kIn, again.value(), next, kSize, Direction::in));
       finish(copied);
       gpu.free(again.value());
       return static_cast<int>(buffers.host[9]);
     }},
    {"AKernelThatIsGivenMemoryWaitsForTheCopyOutOfIt",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu);
       const Event copied = copy_out_of_done_kernel(buffers);
       gpu.free_after(buffers.data, std::span(&copied, with ? 1 : 0));
       unsigned char* again = take(gpu);
       EXPECT_EQ(again, buffers.data);
       fill(gpu, again, 5);
       EXPECT_EQ(look(gpu, again), 5);
       finish(copied);
       gpu.free(again);
       return static_cast<int>(buffers.host[9]);
     }},
    {"WhoIsGivenMemoryWaitsForTheKernelThatFreedIt",
     [](Accelerator& gpu, Accelerator&, bool with) {
       Buffers buffers(gpu, 7);
       fill(gpu, buffers.data, 5);
       if (with) {
         gpu.free(buffers.data);
       } else {
         gpu.free_after(buffers.data, {});
       }
       Result<void*> again = gpu.allocate(Bytes(kSize), kIn);
       EXPECT_EQ(again.value(), buffers.data);
       gpu.wait(kCompute, buffers.copy_in());
       gpu.synchronize(kIn);
       return buffers.look_and_free();
     }},
    {"PeerFreesAfterTheCopy",
     [](Accelerator& gpu, Accelerator& peer, bool with) {
       unsigned char* source = take(peer);
       Buffers buffers(gpu);
       fill(peer, source, 7);
       gpu.wait(kIn, peer.record(kCompute));
       const Event copied = gpu.copy(kIn, buffers.data, source, kSize, Direction::peer);
       if (with) peer.wait(kCompute, copied);
       peer.free(source);
       gpu.wait(kCompute, copied);
       return buffers.look_and_free();
     }},
};

class Adversary : public testing::TestWithParam<Rule> {};

TEST_P(Adversary, LateShowsTheMissingWait) {
  Accelerator peer(options(Visibility::late, 0, "sim:1"));
  Accelerator gpu(options(Visibility::late));
  EXPECT_EQ(GetParam().run(gpu, peer, true), 7);
  EXPECT_NE(GetParam().run(gpu, peer, false), 7);
}

TEST_P(Adversary, RandomShowsTheMissingWaitForSomeSeed) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    Accelerator peer(options(Visibility::random, seed + 100, "sim:1"));
    Accelerator gpu(options(Visibility::random, seed));
    ASSERT_EQ(GetParam().run(gpu, peer, true), 7) << "seed " << seed;
    wrong += GetParam().run(gpu, peer, false) != 7;
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 32) << "random is not always late";
}

TEST_P(Adversary, RightProgramsAreRightEarly) {
  Accelerator peer(options(Visibility::early, 0, "sim:1"));
  Accelerator gpu(options(Visibility::early));
  EXPECT_EQ(GetParam().run(gpu, peer, true), 7);
}

INSTANTIATE_TEST_SUITE_P(Rules, Adversary, testing::ValuesIn(kRules),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace innkeeper::sim
