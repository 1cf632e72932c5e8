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
  explicit Buffers(Accelerator& on, int in_host = 0) : card(on), data(take(on)) {
    std::memset(host, in_host, kSize);
  }
  Event copy_in() { return card.copy(kIn, data, host, kSize, Direction::in); }
  Event copy_out() { return card.copy(kOut, host, data, kSize, Direction::out); }
  // The byte that a kernel reads.
  int look_and_free() {
    const int seen = look(card, data);
    card.free(data);
    return seen;
  }

  Accelerator& card;
  unsigned char* const data;
  unsigned char host[kSize];
};

// Copies out bytes that a finished kernel wrote, so that only the copy is under way.
Event copy_out_of_done_kernel(Buffers& buffers) {
  fill(buffers.card, buffers.data, 7);
  buffers.card.synchronize();
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
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card);
       fill(card, buffers.data, 7);
       if (with) card.wait(kOut, card.record(kCompute));
       finish(buffers.copy_out());
       card.free(buffers.data);
       return static_cast<int>(buffers.host[9]);
     }},
    {"HostWaitsForTheCopyOut",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card);
       const Event copied = copy_out_of_done_kernel(buffers);
       if (with) finish(copied);
       const int seen = buffers.host[9];
       card.synchronize();
       card.free(buffers.data);
       return seen;
     }},
    {"KernelWaitsForTheCopyIn",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card, 7);
       const Event copied = buffers.copy_in();
       if (with) card.wait(kCompute, copied);
       const int seen = look(card, buffers.data);
       card.synchronize();
       card.free(buffers.data);
       return seen;
     }},
    {"HostKeepsTheSourceOfACopyIn",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card, 7);
       const Event copied = buffers.copy_in();
       if (with) finish(copied);
       std::memset(buffers.host, 1, kSize);
       card.wait(kCompute, copied);
       return buffers.look_and_free();
     }},
    {"FreeWaitsForTheCopyOut",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card);
       fill(card, buffers.data, 7);
       card.wait(kOut, card.record(kCompute));
       const Event copied = buffers.copy_out();
       if (with) card.wait(kCompute, copied);
       card.free(buffers.data);
       finish(copied);
       return static_cast<int>(buffers.host[9]);
     }},
    {"CopyInWaitsForWhatUsedItsMemoryBefore",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card, 7);
       fill(card, buffers.data, 1);  // Publishes its result after the copy, unless the copy waits for it.
       if (with) card.wait(kIn, card.record(kCompute));
       finish(buffers.copy_in());
       return buffers.look_and_free();
     }},
    {"FreeWaitsForTheCopyIn",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card, 1);
       const Event copied = buffers.copy_in();
       if (with) card.wait(kCompute, copied);
       card.free(buffers.data);
       unsigned char* next = take(card);
       EXPECT_EQ(next, buffers.data) << "freed memory is used again at once";
       fill(card, next, 7);
       card.synchronize(kCompute);
       card.synchronize();
       const int seen = next[9];
       card.free(next);
       return seen;
     }},
    {"QueueOfOneKernelWaitsForAnother",
     [](Accelerator& card, Accelerator&, bool with) {
       const QueueIndex second = card.create_queue();
       unsigned char* data = take(card);
       fill(card, data, 7);
       if (with) card.wait(second, card.record(kCompute));
       const int seen = look(card, data, kSize, second);
       card.free(data);
       return seen;
     }},
    {"PeerCopyWaitsForThePeersKernel",
     [](Accelerator& card, Accelerator& peer, bool with) {
       unsigned char* source = take(peer);
       Buffers buffers(card);
       fill(peer, source, 7);
       if (with) card.wait(kIn, peer.record(kCompute));
       card.wait(kCompute, card.copy(kIn, buffers.data, source, kSize, Direction::peer));
       const int seen = buffers.look_and_free();
       peer.free(source);
       return seen;
     }},
    {"WhoIsGivenMemoryWaitsForTheCopyOutOfIt",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char next[kSize];
       std::memset(next, 5, kSize);
       Buffers buffers(card);
       const Event copied = copy_out_of_done_kernel(buffers);
       card.free_after(buffers.data, std::span(&copied, with ? 1 : 0));
       Result<void*> again = card.allocate(Bytes(kSize), kIn);
       EXPECT_EQ(again.value(), buffers.data);
       finish(card.copy(kIn, again.value(), next, kSize, Direction::in));
       finish(copied);
       card.free(again.value());
       return static_cast<int>(buffers.host[9]);
     }},
    {"AKernelThatIsGivenMemoryWaitsForTheCopyOutOfIt",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card);
       const Event copied = copy_out_of_done_kernel(buffers);
       card.free_after(buffers.data, std::span(&copied, with ? 1 : 0));
       unsigned char* again = take(card);
       EXPECT_EQ(again, buffers.data);
       fill(card, again, 5);
       EXPECT_EQ(look(card, again), 5);
       finish(copied);
       card.free(again);
       return static_cast<int>(buffers.host[9]);
     }},
    {"WhoIsGivenMemoryWaitsForTheKernelThatFreedIt",
     [](Accelerator& card, Accelerator&, bool with) {
       Buffers buffers(card, 7);
       fill(card, buffers.data, 5);
       if (with) {
         card.free(buffers.data);
       } else {
         card.free_after(buffers.data, {});
       }
       Result<void*> again = card.allocate(Bytes(kSize), kIn);
       EXPECT_EQ(again.value(), buffers.data);
       card.wait(kCompute, buffers.copy_in());
       card.synchronize(kIn);
       return buffers.look_and_free();
     }},
    {"PeerFreesAfterTheCopy",
     [](Accelerator& card, Accelerator& peer, bool with) {
       unsigned char* source = take(peer);
       Buffers buffers(card);
       fill(peer, source, 7);
       card.wait(kIn, peer.record(kCompute));
       const Event copied = card.copy(kIn, buffers.data, source, kSize, Direction::peer);
       if (with) peer.wait(kCompute, copied);
       peer.free(source);
       card.wait(kCompute, copied);
       return buffers.look_and_free();
     }},
};

class Adversary : public testing::TestWithParam<Rule> {};

TEST_P(Adversary, LateShowsTheMissingWait) {
  Accelerator peer(options(Visibility::late, 0, "sim:1"));
  Accelerator card(options(Visibility::late));
  EXPECT_EQ(GetParam().run(card, peer, true), 7);
  EXPECT_NE(GetParam().run(card, peer, false), 7);
}

TEST_P(Adversary, RandomShowsTheMissingWaitForSomeSeed) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    Accelerator peer(options(Visibility::random, seed + 100, "sim:1"));
    Accelerator card(options(Visibility::random, seed));
    ASSERT_EQ(GetParam().run(card, peer, true), 7) << "seed " << seed;
    wrong += GetParam().run(card, peer, false) != 7;
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 32) << "random is not always late";
}

TEST_P(Adversary, RightProgramsAreRightEarly) {
  Accelerator peer(options(Visibility::early, 0, "sim:1"));
  Accelerator card(options(Visibility::early));
  EXPECT_EQ(GetParam().run(card, peer, true), 7);
}

INSTANTIATE_TEST_SUITE_P(Rules, Adversary, testing::ValuesIn(kRules),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace innkeeper::sim
