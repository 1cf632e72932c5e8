#include "torch/random/random_stream.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "innkeeper/torch/runtime.h"
#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor draw(const at::Generator& generator) { return at::randn({33}, generator); }

TEST(RandomStream, GivesTheCpusNumbersForASeed) {
  RandomStream stream(0);
  EXPECT_EQ(stream.generator().device(), managed_device());
  EXPECT_EQ(stream.kernel_generator().device(), at::Device(at::kCPU));
  EXPECT_EQ(stream.generator().current_seed(), c10::default_rng_seed_val);
  at::Generator managed = stream.generator();
  managed.set_current_seed(7);
  EXPECT_EQ(stream.kernel_generator().current_seed(), 7U);
  EXPECT_TRUE(at::equal(draw(stream.kernel_generator()), draw(at::detail::createCPUGenerator(7))));
}

TEST(RandomStream, StateCanBeKeptAndContinued) {
  RandomStream stream(0);
  at::Generator managed = stream.generator();
  draw(stream.kernel_generator());
  const at::Tensor state = managed.get_state();
  EXPECT_TRUE(state.is_cpu());
  const at::Tensor first = draw(stream.kernel_generator());
  const at::Generator copy = managed.clone();
  managed.set_state(state);
  EXPECT_TRUE(at::equal(draw(stream.kernel_generator()), first));
  EXPECT_EQ(copy.device(), managed_device());
  EXPECT_TRUE(at::equal(draw(kernel_generator_of(copy)), draw(stream.kernel_generator())));
}

TEST(RandomStream, HasNoOffset) {
  RandomStream stream(0);
  at::Generator managed = stream.generator();
  EXPECT_EQ(managed.get_offset(), 0U);
  EXPECT_THROW(managed.set_offset(1), c10::Error);
  EXPECT_THROW(kernel_generator_of(at::detail::createCPUGenerator()), c10::Error);
}

TEST(RandomStream, AThreadsStreamIsItsOwn) {
  manual_seed(1);
  const auto experiment = std::make_shared<RandomStream>(0);
  EXPECT_EQ(exchange_stream(experiment), nullptr);
  EXPECT_EQ(&current_stream(0), experiment.get());
  manual_seed(2);
  draw(current_stream(0).kernel_generator());
  std::thread([] { EXPECT_EQ(initial_seed(), 1U); }).join();
  EXPECT_EQ(exchange_stream(nullptr), experiment);
  EXPECT_EQ(initial_seed(), 1U);
  EXPECT_TRUE(at::equal(draw(current_stream(0).kernel_generator()), draw(at::detail::createCPUGenerator(1))));
}

TEST(DefaultGeneratorTurn, DrawsFromTheStreamAndPutsTheUsersStateBack) {
  at::manual_seed(5);
  const at::Tensor users_next = draw(at::detail::getDefaultCPUGenerator());
  at::manual_seed(5);
  RandomStream stream(0);
  at::Generator(stream.generator()).set_current_seed(6);
  at::Tensor inside;
  {
    const DefaultGeneratorTurn turn(stream, c10::kCPU);
    const DefaultGeneratorTurn nested(stream, c10::kCPU);
    inside = at::randn({33});
  }
  const at::Generator expected = at::detail::createCPUGenerator(6);
  EXPECT_TRUE(at::equal(inside, draw(expected)));
  EXPECT_TRUE(at::equal(draw(at::detail::getDefaultCPUGenerator()), users_next));
  EXPECT_TRUE(at::equal(draw(stream.kernel_generator()), draw(expected))) << "the stream went on";
}

TEST(DefaultGeneratorTurn, ThreadsTakeTurns) {
  at::manual_seed(5);
  const at::Tensor users_state = at::detail::getDefaultCPUGenerator().get_state();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    threads.emplace_back([seed, &wrong] {
      RandomStream stream(0);
      at::Generator(stream.generator()).set_current_seed(seed);
      const at::Generator alone = at::detail::createCPUGenerator(seed);
      for (int i = 0; i < 50; ++i) {
        const DefaultGeneratorTurn turn(stream, c10::kCPU);
        if (!at::equal(at::randn({33}), draw(alone))) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), users_state));
}

}  // namespace
}  // namespace innkeeper::torch_layer
