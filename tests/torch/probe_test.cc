// The probe measures the rates of a simulated GPU, not those that its name promises.
#include "torch/start/probe.h"

#include <optional>
#include <utility>

#include "device/host.h"
#include "sim_fixture.h"

namespace innkeeper::torch_layer {
namespace {

const c10::Device kDevice(c10::kHPU, 0);

class Probe : public testing::Test {
 protected:
  // A simulator without data, so that a large matrix product costs nothing here.
  sim::Accelerator& install(std::optional<cost::Truth> truth, Bytes capacity = GiB(8)) {
    sim::Options options;
    options.name = "sim:0";
    options.capacity = capacity;
    options.visibility = sim::Visibility::early;
    options.poison = options.data = false;
    options.truth = truth;
    options.gpu = cost::gpu_named("H100").value();
    options.host_link = cost::link_named("PCIe 5 x16").value();
    sim_backend::install({std::make_shared<sim::Accelerator>(options)}, nullptr, std::array{NodeId{0}});
    return sim_backend::accelerator(0);
  }
  cost::Measured measured(const sim::Accelerator& gpu, Bytes space, bool products = true) {
    HostDevice host("host", Slabs::Options{.blank = true});
    const cost::Measured found = probe({.device = kDevice,
                                        .gpu = gpu.options().gpu,
                                        .link = gpu.options().host_link.bandwidth,
                                        .space = space,
                                        .products = products,
                                        .host_memory = &host});
    EXPECT_EQ(gpu.live(), Bytes(0)) << "nothing is left";
    EXPECT_EQ(host.live(), Bytes(0));
    return found;
  }
};

TEST_F(Probe, FindsTheTrueRates) {
  for (const std::optional<cost::Truth> truth :
       {std::optional<cost::Truth>(), std::optional(cost::Truth(1)), std::optional(cost::Truth(2))}) {
    const sim::Accelerator& gpu = install(truth);
    const cost::Measured found = measured(gpu, GiB(1));
    EXPECT_EQ(found.precision, cost::Precision::bf16);
    EXPECT_NEAR(found.flops / gpu.gpu().flops(cost::Precision::bf16), 1, 0.03);
    EXPECT_NEAR(found.bytes / gpu.gpu().bytes(), 1, 0.06);
    EXPECT_NEAR(found.in / gpu.host_link().bandwidth, 1, 0.02);
    EXPECT_NEAR(found.out / gpu.host_link().bandwidth, 1, 0.02);
  }
}

TEST_F(Probe, MeasuresNothingThatIsTooShort) {
  const cost::Measured found = measured(install(std::nullopt), MiB(4));
  EXPECT_FALSE(found.any());
}

TEST_F(Probe, LeavesOutWhatItIsNotToMeasure) {
  const cost::Measured found = measured(install(std::nullopt), GiB(1), /*products=*/false);
  EXPECT_EQ(found.flops, 0);
  EXPECT_GT(found.bytes, 0);
}

// The probe skips a measurement that does not fit, and makes the others.
TEST_F(Probe, SurvivesAFullDevice) {
  const cost::Measured found = measured(install(std::nullopt, MiB(64)), GiB(1));
  EXPECT_EQ(found.flops, 0);
}

}  // namespace
}  // namespace innkeeper::torch_layer
