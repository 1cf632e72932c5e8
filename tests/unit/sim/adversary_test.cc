// The rules of the adversary: for each, the program that forgets it gets poison, the one that keeps it the
// data.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "support/accelerator.h"

namespace innkeeper::sim {
namespace {

using test::fill;
using test::kCompute;
using test::kIn;
using test::kOut;
using test::kSize;
using test::look;
using test::options;
using test::take;
using Direction = Accelerator::Direction;

// Each rule runs `with` or without the wait that it is about, and returns the byte that the program ends up
// with (7 if it is right).
struct Rule {
  const char* name;
  std::function<int(Accelerator&, Accelerator& peer, bool with)> run;
};

const Rule kRules[] = {
    {"CopyOutWaitsForTheKernel",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize] = {};
       unsigned char* data = take(card);
       fill(card, data, 7);
       if (with) card.wait(kOut, card.record(kCompute));
       const Event copied = card.copy(kOut, host, data, kSize, Direction::out);
       EXPECT_TRUE(copied->synchronize().ok());
       card.free(data);
       return static_cast<int>(host[9]);
     }},
    {"HostWaitsForTheCopyOut",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize] = {};
       unsigned char* data = take(card);
       fill(card, data, 7);
       card.synchronize();
       const Event copied = card.copy(kOut, host, data, kSize, Direction::out);
       if (with) {
         EXPECT_TRUE(copied->synchronize().ok());
       }
       const int seen = host[9];
       card.synchronize();
       card.free(data);
       return seen;
     }},
    {"KernelWaitsForTheCopyIn",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize];
       std::memset(host, 7, kSize);
       unsigned char* data = take(card);
       const Event copied = card.copy(kIn, data, host, kSize, Direction::in);
       if (with) card.wait(kCompute, copied);
       const int seen = look(card, data);
       card.synchronize();
       card.free(data);
       return seen;
     }},
    {"HostKeepsTheSourceOfACopyIn",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize];
       std::memset(host, 7, kSize);
       unsigned char* data = take(card);
       const Event copied = card.copy(kIn, data, host, kSize, Direction::in);
       if (with) {
         EXPECT_TRUE(copied->synchronize().ok());
       }
       std::memset(host, 1, kSize);
       card.wait(kCompute, copied);
       const int seen = look(card, data);
       card.free(data);
       return seen;
     }},
    {"FreeWaitsForTheCopyOut",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize] = {};
       unsigned char* data = take(card);
       fill(card, data, 7);
       card.wait(kOut, card.record(kCompute));
       const Event copied = card.copy(kOut, host, data, kSize, Direction::out);
       if (with) card.wait(kCompute, copied);
       card.free(data);
       EXPECT_TRUE(copied->synchronize().ok());
       return static_cast<int>(host[9]);
     }},
    {"CopyInWaitsForWhatUsedItsMemoryBefore",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize];
       std::memset(host, 7, kSize);
       unsigned char* data = take(card);
       fill(card, data, 1);  // its result is published after the copy, unless the copy waits for it
       if (with) card.wait(kIn, card.record(kCompute));
       const Event copied = card.copy(kIn, data, host, kSize, Direction::in);
       EXPECT_TRUE(copied->synchronize().ok());
       const int seen = look(card, data);
       card.free(data);
       return seen;
     }},
    {"FreeWaitsForTheCopyIn",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize];
       std::memset(host, 1, kSize);
       unsigned char* data = take(card);
       const Event copied = card.copy(kIn, data, host, kSize, Direction::in);
       if (with) card.wait(kCompute, copied);
       card.free(data);
       unsigned char* next = take(card);
       EXPECT_EQ(next, data) << "freed memory is used again at once";
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
       unsigned char* data = take(card);
       fill(peer, source, 7);
       if (with) card.wait(kIn, peer.record(kCompute));
       card.wait(kCompute, card.copy(kIn, data, source, kSize, Direction::peer));
       const int seen = look(card, data);
       card.free(data);
       peer.free(source);
       return seen;
     }},
    {"WhoIsGivenMemoryWaitsForTheCopyOutOfIt",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize] = {};
       unsigned char next[kSize];
       std::memset(next, 5, kSize);
       unsigned char* data = take(card);
       fill(card, data, 7);
       card.synchronize();
       const Event copied = card.copy(kOut, host, data, kSize, Direction::out);
       card.free_after(data, std::span(&copied, with ? 1 : 0));
       Result<void*> again = card.allocate(Bytes(kSize), kIn);
       EXPECT_EQ(again.value(), data);
       EXPECT_TRUE(card.copy(kIn, again.value(), next, kSize, Direction::in)->synchronize().ok());
       EXPECT_TRUE(copied->synchronize().ok());
       card.free(again.value());
       return static_cast<int>(host[9]);
     }},
    {"AKernelThatIsGivenMemoryWaitsForTheCopyOutOfIt",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize] = {};
       unsigned char* data = take(card);
       fill(card, data, 7);
       card.synchronize();
       const Event copied = card.copy(kOut, host, data, kSize, Direction::out);
       card.free_after(data, std::span(&copied, with ? 1 : 0));
       unsigned char* again = take(card);
       EXPECT_EQ(again, data);
       fill(card, again, 5);
       EXPECT_EQ(look(card, again), 5);
       EXPECT_TRUE(copied->synchronize().ok());
       card.free(again);
       return static_cast<int>(host[9]);
     }},
    {"WhoIsGivenMemoryWaitsForTheKernelThatFreedIt",
     [](Accelerator& card, Accelerator&, bool with) {
       unsigned char host[kSize];
       std::memset(host, 7, kSize);
       unsigned char* data = take(card);
       fill(card, data, 5);
       if (with) {
         card.free(data);
       } else {
         card.free_after(data, {});
       }
       Result<void*> again = card.allocate(Bytes(kSize), kIn);
       EXPECT_EQ(again.value(), data);
       card.wait(kCompute, card.copy(kIn, again.value(), host, kSize, Direction::in));
       card.synchronize(kIn);
       const int seen = look(card, static_cast<unsigned char*>(again.value()));
       card.free(again.value());
       return seen;
     }},
    {"PeerFreesAfterTheCopy",
     [](Accelerator& card, Accelerator& peer, bool with) {
       unsigned char* source = take(peer);
       unsigned char* data = take(card);
       fill(peer, source, 7);
       card.wait(kIn, peer.record(kCompute));
       const Event copied = card.copy(kIn, data, source, kSize, Direction::peer);
       if (with) peer.wait(kCompute, copied);
       peer.free(source);
       card.wait(kCompute, copied);
       const int seen = look(card, data);
       card.free(data);
       return seen;
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
