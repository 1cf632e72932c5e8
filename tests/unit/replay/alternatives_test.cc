// Practices of today, as rules on small programs with times counted by hand: kernels take whole milliseconds,
// a block has some MiB, and the link carries one MiB in a millisecond.
#include "replay/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "replay/comparison.h"
#include "replay/trips.h"
#include "support/parsed_record.h"

namespace innkeeper::replay {
namespace {

using test::parsed;

constexpr double kMs = 1e-3;
const cost::GpuModel kGpu{.name = "plain",
                          .memory = GiB(1),
                          .rates = {0, 0, 0, 1e9},
                          .bandwidth = 1e15,
                          .launch_seconds = 0,
                          .reached_flops = 1};
const cost::LinkModel kLink{.name = "plain", .bandwidth = 1024.0 * (1 << 20) / 1.024, .latency = 0};

// A chain of layers, trained: each kernel takes 1 ms. Blocks of layer i in step s, in MiB as given:
// parameter 100 + i, state 200 + i; activation, its gradient and the parameter's gradient are the step's.
struct Sizes {
  int64_t parameter = 1, state = 1, activation = 1;
};

class Training {
 public:
  Training(int layers, Sizes sizes) : layers_(layers), sizes_(sizes) {
    text_ = "O make";
    for (int i = 1; i <= layers; ++i) text_ += parameter(i, 'o') + state(i, 'o');
    text_ += "\n";
  }
  std::string steps(int count) {
    for (int step = 0; step < count; ++step) add(1000 * (step + 1));
    return text_;
  }

 private:
  static std::string access(int block, int64_t mib, char kind) {
    return " " + std::to_string(block) + ":" + std::to_string(mib << 20) + kind;
  }
  std::string parameter(int i, char kind) const { return access(100 + i, sizes_.parameter, kind); }
  std::string state(int i, char kind) const { return access(200 + i, sizes_.state, kind); }
  std::string made(int block, char kind) const { return access(block, sizes_.activation, kind); }
  void op(const std::string& accesses) { text_ += "O op =1000000,0,1" + accesses + "\n"; }
  void freed(int block) { text_ += "F " + std::to_string(block) + "\n"; }

  void add(int step) {
    const int output = step + 100, wanted = step + 200, gradient = step + 300;
    for (int i = 1; i <= layers_; ++i)
      op(parameter(i, 'r') + (i > 1 ? made(output + i - 1, 'r') : "") + made(output + i, 'o'));
    op(made(output + layers_, 'r') + made(wanted + layers_, 'o'));
    freed(output + layers_);
    for (int i = layers_; i >= 1; --i) {
      op(parameter(i, 'r') + made(wanted + i, 'r') + (i > 1 ? made(output + i - 1, 'r') : "") +
         access(gradient + i, sizes_.parameter, 'o') + (i > 1 ? made(wanted + i - 1, 'o') : ""));
      freed(wanted + i);
      if (i > 1) freed(output + i - 1);
    }
    for (int i = 1; i <= layers_; ++i) {
      op(parameter(i, 'w') + state(i, 'w') + access(gradient + i, sizes_.parameter, 'r'));
      freed(gradient + i);
    }
    text_ += "M step\n";
  }

  const int layers_;
  const Sizes sizes_;
  std::string text_;
};

RecordedProgram training(int layers, Sizes sizes) {
  return last_steps(parsed(Training(layers, sizes).steps(6)), kGpu, 5);
}

int64_t bytes_of(const RecordedProgram& program, Role role, int64_t step) {
  int64_t bytes = 0;
  for (const Tensor& tensor : program.tensors)
    if (tensor.role == role && (tensor.lasts || tensor.step == step)) bytes += tensor.bytes;
  return bytes >> 20;
}

TEST(RecordedProgram, TellsTensorsApartByWhatAStepDoesWithThem) {
  const RecordedProgram program = training(4, {.parameter = 2, .state = 3, .activation = 4});
  ASSERT_EQ(program.steps.size(), 5u);
  const Parts& step = program.steps[1];
  EXPECT_EQ(step.end - step.begin, 13);
  EXPECT_EQ(step.turn - step.begin, 4) << "the loss";
  EXPECT_EQ(step.optimizer - step.begin, 9);
  EXPECT_EQ(bytes_of(program, Role::parameter, 1), 4 * 2);
  EXPECT_EQ(bytes_of(program, Role::state, 1), 4 * 3);
  EXPECT_EQ(bytes_of(program, Role::gradient, 1), 4 * 2);
  EXPECT_EQ(bytes_of(program, Role::saved, 1), 4 * 4)
      << "three activations, and what the loss hands to backward";
  for (const Tensor& tensor : program.tensors) EXPECT_EQ(tensor.trained, tensor.role == Role::parameter);
}

TEST(RecordedProgram, TakesStatisticsThatForwardWritesForNoOptimizer) {
  std::string text = "O make 1:1048576o 2:512o 3:1048576o\n";
  for (int step = 1; step <= 4; ++step) {
    const std::string made = std::to_string(10 * step) + ":1048576";
    text += "O norm =1000000,0,1 1:1048576r 2:512w " + made + "o\nO norm_backward =1000000,0,1 1:1048576r " +
            made + "r 2:512r\nF " + std::to_string(10 * step) + "\nM step\n";
  }
  const RecordedProgram program = last_steps(parsed(text), kGpu, 3);
  ASSERT_EQ(program.steps.size(), 3u);
  EXPECT_EQ(program.steps[0].optimizer, program.steps[0].end) << "nobody optimizes";
  EXPECT_EQ(bytes_of(program, Role::parameter, 0), 2)
      << "what is never used is one too: nobody needs it there";
}

TEST(RecordedProgram, OfNothingIsNothing) {
  EXPECT_TRUE(last_steps({}, kGpu, 4).steps.empty());
  EXPECT_TRUE(last_steps(parsed("O a 1:64o\nF 1\nF 7\n"), kGpu, 4).kernels.empty());
  EXPECT_EQ(last_steps(parsed("O a 1:64o\nM step\nM step\n"), kGpu, 4).steps.size(), 2u);
}

// Five steps of four kernels of 1 ms each.
constexpr int64_t kSteps[] = {0, 4, 8, 12, 16};

RecordedProgram four_kernels(std::vector<Tensor> tensors) {
  RecordedProgram program{
      .kernels = std::vector<double>(20, kMs), .tensors = std::move(tensors), .steps = {}};
  for (const int64_t step : kSteps) program.steps.push_back({step, step, step + 4, step + 4});
  return program;
}

// Two MiB that the first operator of each step reads.
RecordedProgram used_at_first() {
  Tensor tensor{.bytes = 2 << 20, .lasts = true, .died = 19, .uses = {}};
  for (const int64_t step : kSteps) tensor.uses.push_back({step, false});
  return four_kernels({tensor});
}

// The blocks are away in between.
Course away(bool copied, int64_t ahead) {
  Course course;
  for (const int64_t step : std::span(kSteps).first(4))
    course.trips.push_back(
        {.tensor = 0, .leaves = step, .copied = copied, .returns = step + 4, .from = step + 4 - ahead});
  return course;
}

TEST(Trips, OverlapKernelsAsFarAsTheyMayBegin) {
  const RecordedProgram program = used_at_first();
  const auto seconds = [&](const Course& course) {
    return cost(program, course, kLink, MiB(2)).seconds / kMs;
  };
  EXPECT_NEAR(seconds({}), 4, 1e-9);
  EXPECT_NEAR(seconds(away(false, 0)), 6, 1e-9);
  EXPECT_NEAR(seconds(away(false, 1)), 5, 1e-9);
  EXPECT_NEAR(seconds(away(false, 2)), 4, 1e-9);
  EXPECT_NEAR(seconds(away(true, 2)), 5, 1e-9) << "it is not out before the third kernel ends";
  EXPECT_EQ(cost(program, away(true, 2), kLink, MiB(2)).in, MiB(2));
  EXPECT_EQ(cost(program, away(true, 2), kLink, MiB(2)).out, MiB(2));
  EXPECT_EQ(least_space(program, away(true, 2)), MiB(2));
}

TEST(Trips, WaitForMemoryThatCopiesFree) {
  std::vector<Tensor> tensors;
  for (const int64_t step : kSteps) {
    tensors.push_back(
        {.bytes = 2 << 20, .born = step, .died = step + 3, .uses = {{step, true}, {step + 3, false}}});
    tensors.push_back({.bytes = 2 << 20, .born = step + 1, .died = step + 1, .uses = {{step + 1, true}}});
  }
  const RecordedProgram program = four_kernels(tensors);
  Course course;
  for (size_t step = 0; step < 5; ++step) {
    const auto begin = static_cast<int64_t>(4 * step);
    course.trips.push_back(
        {.tensor = 2 * step, .leaves = begin, .copied = true, .returns = begin + 3, .from = begin + 1});
  }
  EXPECT_EQ(least_space(program, {}), MiB(4));
  EXPECT_EQ(least_space(program, course), MiB(2));
  // Kernels run at 0 to 1, 3 to 4, 4 to 5 and 6 to 7; copies run out until 3 and in until 6.
  EXPECT_NEAR(cost(program, course, kLink, MiB(2)).seconds / kMs, 7, 1e-9);
  // The second kernel need not wait, but the copy in follows the copy out: 1 to 3, 3 to 5; kernel 5 to 6.
  EXPECT_NEAR(cost(program, course, kLink, MiB(4)).seconds / kMs, 6, 1e-9);
}

TEST(Trips, OfWhatTheHostMakesComeWhileItMakesTheRest) {
  const RecordedProgram program = used_at_first();
  Course course = away(false, 0);
  for (TensorTrip& trip : course.trips) {
    trip.keeps_memory = true;
    trip.of_host = 0.5;
  }
  course.host_seconds = 10 * kMs;
  EXPECT_NEAR(cost(program, course, kLink, MiB(2)).seconds / kMs, 14, 1e-9) << "there by 11 of 14";
  for (TensorTrip& trip : course.trips) trip.of_host = 1;
  EXPECT_NEAR(cost(program, course, kLink, MiB(2)).seconds / kMs, 16, 1e-9) << "begins when all is made";
}

TEST(Alternatives, MoveNothingWhereAllFits) {
  const RecordedProgram program = training(4, {.activation = 4});
  const Bytes all = least_space(program, {});
  EXPECT_EQ(all, MiB(8 + 20 + 1))
      << "in the first backward operator: two activations' gradients, three saved";
  const Alternatives found = alternatives(program, kLink, all);
  for (const Alternative* each : {&found.modules, &found.activations, &found.optimizer}) {
    ASSERT_TRUE(each->cost.has_value());
    EXPECT_NEAR(each->cost->seconds / kMs, 13, 1e-9);
    EXPECT_EQ(each->cost->in + each->cost->out, Bytes(0));
    EXPECT_FALSE(each->by_host);
  }
}

TEST(Alternatives, ActivationsLeaveInForwardAndComeBackInBackward) {
  const RecordedProgram program = training(4, {.activation = 4});
  const Alternative found = alternatives(program, kLink, MiB(25)).activations;
  ASSERT_TRUE(found.cost.has_value());
  EXPECT_EQ(found.cost->out, MiB(4)) << "the first of three is enough";
  EXPECT_EQ(found.cost->in, MiB(4));
  // Its copy out begins at 2 and frees the space for the loss at 6, which takes until 7. Backward's second
  // operator needs it at 9, when there is space to fetch it, and has it at 13. It takes until 14, and five
  // more operators until 19.
  EXPECT_NEAR(found.cost->seconds / kMs, 19, 1e-9);
}

TEST(Alternatives, HaveANeedOfTheirOwn) {
  const RecordedProgram program = training(4, {.parameter = 2, .state = 3, .activation = 4});
  const Alternatives found = alternatives(program, kLink, MiB(1));
  EXPECT_FALSE(found.modules.cost || found.activations.cost || found.optimizer.cost);
  // Backward's third operator needs two activations' gradients, one saved activation, and three parameters'
  // gradients.
  EXPECT_EQ(found.activations.least, MiB(20 + 3 * 4 + 3 * 2)) << "what lasts, and backward's third operator";
  EXPECT_EQ(found.modules.least, MiB(5 * 4 + 2 + 2)) << "backward's first: one parameter, its gradient";
  EXPECT_EQ(found.optimizer.least, found.modules.least) << "it moves the same, and activations stay";
}

TEST(Alternatives, ModulesComeOneByOneBesideTheOneBefore) {
  // Two layers in which only parameters and state have bytes: each takes 4 ms to arrive or leave.
  const RecordedProgram program = training(2, {.parameter = 4, .state = 4, .activation = 0});
  const Alternative found = alternatives(program, kLink, MiB(12)).modules;
  EXPECT_EQ(found.least, MiB(12)) << "a parameter, its gradient and its state";
  ASSERT_TRUE(found.cost.has_value());
  // Parameters come for forward, for backward, and the second for the optimizer, where the first still is;
  // state comes once, and the second gradient comes back. Parameters and state leave where they were written.
  EXPECT_EQ(found.cost->in, MiB((2 + 2 + 1 + 2 + 1) * 4));
  EXPECT_EQ(found.cost->out, MiB((2 + 2 + 1) * 4));
  // The link is busy with arriving blocks except for 4 ms. It is idle after the last forward operator, where
  // no block is needed before the operator ends (8 to 9). It is idle after backward's second operator until
  // the second gradient has freed space (17 to 18). It is idle while the two optimizer's operators run,
  // because their space admits no other block (22 to 23, 35 to 36).
  EXPECT_NEAR(found.cost->seconds / kMs, 32 + 4, 1e-9);
  const Alternative wide = alternatives(program, kLink, MiB(20)).modules;
  ASSERT_TRUE(wide.cost.has_value());
  EXPECT_LT(wide.cost->seconds, found.cost->seconds) << "there is room to fetch ahead";
  EXPECT_NEAR(alternatives(program, kLink, MiB(24)).modules.cost->seconds / kMs, 7, 1e-9);
}

// The accesses of zero_grad(set_to_none=False).
TEST(Alternatives, GradientsThatLastGoToTheHostInEachStep) {
  std::string text = "O make 1:1048576o 2:67108864o 3:1048576o\n";
  for (int step = 0; step < 6; ++step)
    text +=
        "O zero =1000000,0,1 3:1048576w\nO f =1000000,0,1 1:1048576r\nO b =1000000,0,1 1:1048576r "
        "3:1048576w\n"
        "O o =1000000,0,1 1:1048576w 2:67108864w 3:1048576r\nM step\n";
  const RecordedProgram program = last_steps(parsed(text), kGpu, 5);
  EXPECT_EQ(bytes_of(program, Role::gradient, 0), 1);
  const Alternative found = alternatives(program, kLink, MiB(4)).optimizer;
  ASSERT_TRUE(found.cost.has_value());
  EXPECT_TRUE(found.by_host);
  EXPECT_EQ(found.least, MiB(2));
  EXPECT_EQ(found.cost->out, MiB(1));
  EXPECT_EQ(found.cost->in, MiB(1));
  // Three kernels, of which the first needs no parameter; its gradient moves in 1 ms; the host touches 131
  // MiB. The step makes the parameter last, and the second kernel reads it; before that the first kernel and
  // the copy overlap.
  EXPECT_NEAR(found.cost->seconds / kMs, 3 + 1 + 131.0 * (1 << 20) / kHostBandwidth / kMs, 1e-6);
}

TEST(Alternatives, MoveNoMoreModulesThanTheSpaceRequires) {
  const RecordedProgram program = training(8, {.parameter = 4, .state = 4, .activation = 0});
  Bytes before = GiB(1);
  for (const int64_t space : {12, 40, 60, 80, 96}) {
    const Alternative found = alternatives(program, kLink, MiB(space)).modules;
    ASSERT_TRUE(found.cost.has_value()) << space;
    EXPECT_LT(found.cost->in, before) << space;
    before = found.cost->in;
  }
  EXPECT_EQ(before, Bytes(0)) << "all fits";
}

TEST(Alternatives, TheHostMakesTheStepWhereStateIsLarge) {
  const RecordedProgram program = training(4, {.parameter = 1, .state = 64, .activation = 1});
  const Alternative found = alternatives(program, kLink, MiB(32)).optimizer;
  ASSERT_TRUE(found.cost.has_value());
  EXPECT_TRUE(found.by_host);
  EXPECT_EQ(found.cost->out, MiB(4)) << "gradients";
  EXPECT_EQ(found.cost->in, MiB(4)) << "parameters";
  // Nine kernels; the last gradient leaves within 1 ms after them; then the host touches 2 * 4 + 2 * 256 + 4
  // MiB. The first parameter is ready after a quarter of that, and arrives within 1 ms; the others arrive in
  // time.
  const double host = (8 + 512 + 4) * double{1 << 20} / kHostBandwidth / kMs;
  EXPECT_NEAR(found.cost->seconds / kMs, 9 + 1 + host / 4 + 1, 1e-6);
  const Alternative gpu = alternatives(program, kLink, MiB(200)).modules;
  ASSERT_TRUE(gpu.cost.has_value());
  EXPECT_GT(gpu.cost->seconds, found.cost->seconds) << "state over the link";
}

// Steps that touch random blocks, each step like the one before: some blocks last, the others die in the step
// or the next.
std::string wandering(std::mt19937& random) {
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  const auto mib = [](int block) { return std::to_string(int64_t{1 + block % 5} << 20); };
  const int lasting = 1 + below(8), made = 1 + below(20), operators = 4 + below(40);
  std::string once = "O make";
  for (int i = 1; i <= lasting; ++i) once += " " + std::to_string(i) + ":" + mib(i) + "o";
  std::vector<std::string> lines;  // "@12" is block 12 of the step, "@-12" of the one before.
  std::vector<int> alive;
  for (int i = 0, next = 0; i < operators; ++i) {
    std::string line = "O op =" + std::to_string(below(3'000'000)) + ",0,1";
    if (next < made && below(2) == 0) {
      line += " @" + std::to_string(next) + ":" + mib(next) + "o";
      alive.push_back(next++);
    }
    for (int k = below(4); k > 0; --k) {
      if (below(2) == 0 || alive.empty()) {
        const int block = 1 + below(lasting);
        line += " " + std::to_string(block) + ":" + mib(block) + "rw"[below(2)];
      } else {
        const int block = alive[static_cast<size_t>(below(static_cast<int>(alive.size())))];
        line += " @" + std::to_string(block) + ":" + mib(block) + "rw"[below(2)];
      }
    }
    lines.push_back(line);
    if (alive.empty() || below(3) != 0) continue;
    lines.push_back("F @" + std::to_string(alive.back()));
    alive.pop_back();
  }
  for (const int block : alive)
    lines.insert(lines.begin() + below(operators / 2), "F @-" + std::to_string(block));
  std::string text = once + "\n";
  for (int step = 1; step <= 6; ++step) {
    for (std::string line : lines) {
      for (size_t at = 0; (at = line.find('@')) != std::string::npos;) {
        const bool before = line[at + 1] == '-';
        line.replace(at, before ? 2 : 1, std::to_string(step - (before ? 1 : 0)) + "00");
      }
      text += line + "\n";
    }
    text += "M step\n";
  }
  return text;
}

TEST(Alternatives, OfAnyProgramFitWhereTheySayAndNoFasterThanItsParts) {
  std::mt19937 random(7);
  for (int program_number = 0; program_number < 100; ++program_number) {
    const RecordedProgram program = last_steps(parsed(wandering(random)), kGpu, 5);
    double kernels = 0;  // Kernel seconds of a step without the optimizer's part, which the host may run.
    const Parts& step = program.steps[2];
    for (int64_t at = step.begin; at < step.optimizer; ++at)
      kernels += program.kernels[static_cast<size_t>(at)];
    const int64_t all = least_space(program, {}).count();
    for (const int64_t space : {all, all * 3 / 4, all / 2, all / 4}) {
      const Alternatives found = alternatives(program, kLink, Bytes(space));
      for (const Alternative* each : {&found.modules, &found.activations, &found.optimizer}) {
        EXPECT_LE(each->least, Bytes(all));
        EXPECT_EQ(each->cost.has_value(), each->least <= Bytes(space)) << program_number;
        if (!each->cost) continue;
        EXPECT_GE(each->cost->seconds, kernels - 1e-9) << program_number;
        EXPECT_GE(
            each->cost->seconds,
            static_cast<double>(std::max(each->cost->in, each->cost->out).count()) / kLink.bandwidth - 1e-9);
      }
    }
  }
}

TEST(Comparison, HasTheAlternativesBesideThePlan) {
  const std::array shares = {1.0, 0.9, 0.3};
  const Result<Comparison> found =
      compare(parsed(Training(4, {.activation = 4}).steps(3)), kGpu, kLink, shares, 40);
  ASSERT_TRUE(found.ok()) << found.status().message();
  const std::vector<Row>& rows = found.value().rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(rows[0].others.activations.cost->seconds / kMs, 13, 1e-9);
  EXPECT_GT(rows[1].others.activations.cost->seconds / kMs, 13);
  EXPECT_FALSE(rows[2].others.modules.cost) << "activations stay";
}

}  // namespace
}  // namespace innkeeper::replay
