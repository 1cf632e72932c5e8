// Choosing from C++ (innkeeper/choice.h), on machines of fake GPUs of one vendor and of two.
#include "innkeeper/choice.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "lease/here.h"
#include "support/child.h"
#include "support/environment.h"
#include "support/fake_gpus.h"
#include "support/temporary_lease_directory.h"
#include "telemetry/visible.h"

namespace innkeeper {
namespace {

using std::chrono::milliseconds;
using Uuids = std::vector<std::string>;

constexpr const char* kA = "GPU-aaaaaaaa-0000-4000-8000-00000000000a";
constexpr const char* kB = "GPU-bbbbbbbb-0000-4000-8000-00000000000b";
constexpr const char* kC = "GPU-cccccccccccccccc";  // AMD's
constexpr const char* kD = "GPU-dddddddddddddddd";
constexpr int64_t kGiB = int64_t{1} << 30;

// A has the most free memory. B has the largest free part, the smallest share of its power limit, and the
// least load.
const std::string kTwo =
    "gpu " + std::string(kA) +
    "\n bus 00000000:01:00.0\n name X\n memory 80G 0 40G\n utilization 90 0\n power 300 "
    "400\n temperature 50\ngpu " +
    kB + "\n bus 00000000:02:00.0\n name X\n memory 20G 0 0\n utilization 10 0\n power 100 400\n";
const std::string kAmdTwo =
    "gpu cccccccccccccccc\n bus 0000:03:00.0\n memory 192G 0 0\n"
    "gpu dddddddddddddddd\n bus 0000:04:00.0\n memory 192G 0 1G\n";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "not set" : value;
}

class ChoiceTest : public testing::Test {
 protected:
  ChoiceTest() {
    environment_.set("INNKEEPER_LEASE_DIR", directory_.path());
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                             "CUDA_DEVICE_ORDER", "INNKEEPER_LEASE", "INNKEEPER_LEASE_FD"})
      environment_.remove(name);
  }
  static Uuids uuids(const ChoiceRequest& request) { return auto_choice(request).uuids(); }

  test::TemporaryLeaseDirectory directory_;
  test::Environment environment_;
};

template <class Error>
std::string refusal(const ChoiceRequest& request) {
  try {
    (void)auto_choice(request);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "granted";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(ChoiceTest, IsShownUntilItEnds) {
  const test::FakeGpus gpus(kTwo);
  environment_.set("CUDA_VISIBLE_DEVICES", "1,0");
  {
    const Choice first = auto_choice({.mode = ChoiceMode::ratio, .memory = 8 * kGiB});
    EXPECT_EQ(first.uuids(), Uuids{kB});
    EXPECT_EQ(first.lease().claims(), (std::map<std::string, int64_t>{{kB, 8 * kGiB}}));
    EXPECT_EQ(first.memory(), 8 * kGiB);
    EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), kB);
    {
      // The second choice looks at the devices that the process was given, not at those that the first left
      // visible.
      Choice second = auto_choice();
      EXPECT_EQ(second.uuids(), Uuids{kA});
      EXPECT_EQ(second.lease().claims().at(kA), 1 << 20);
      EXPECT_EQ(second.memory(), std::nullopt);
      EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), std::string(kB) + "," + kA);
      EXPECT_EQ(second.ordinals(), std::vector<int>{1});
      EXPECT_EQ(directory_.files(), 2);
      Choice moved = std::move(second);
      EXPECT_EQ(moved.ordinals(), std::vector<int>{1});
      second = auto_choice();  // shares
      second.release();
      second.release();
      EXPECT_FALSE(second.lease().held());
      EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), std::string(kB) + "," + kA);
    }
    EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), kB);
    EXPECT_EQ(first.ordinals(), std::vector<int>{0});
  }
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "1,0");
  EXPECT_EQ(variable("ROCR_VISIBLE_DEVICES"), "not set");
  EXPECT_EQ(directory_.files(), 0);
  // A variable that the program sets meanwhile stays as the program set it.
  {
    const Choice choice = auto_choice();
    environment_.set("CUDA_VISIBLE_DEVICES", "7");
  }
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "7");
}

TEST_F(ChoiceTest, ModesAndKeys) {
  const test::FakeGpus fake(kTwo);
  EXPECT_EQ(uuids({}), Uuids{kA});
  EXPECT_EQ(uuids({.mode = ChoiceMode::ratio}), Uuids{kB});
  EXPECT_EQ(uuids({.mode = ChoiceMode::power}), Uuids{kB});
  EXPECT_EQ(uuids({.mode = ChoiceMode::utilization}), Uuids{kB});
  EXPECT_EQ(uuids({.n = 2}), (Uuids{kA, kB}));
  int asked = 0;
  EXPECT_EQ(uuids({.mode = ChoiceMode::ratio,
                   .key =
                       [&asked](const GPU& gpu) {
                         ++asked;
                         return gpu.temperature.value_or(0);
                       }}),
            Uuids{kA});
  EXPECT_EQ(asked, 2);
  const std::vector<GPU> now = gpus();
  ASSERT_EQ(now.size(), 2U);
  EXPECT_EQ(now[0].memory_free, 40 * kGiB);
  EXPECT_EQ(now[0].utilization, 0.9);
  EXPECT_EQ(now[1].power_limit, 400);
  EXPECT_EQ(now[1].temperature, std::nullopt);
}

TEST_F(ChoiceTest, ErrorsCarryTheNumbers) {
  const test::FakeGpus gpus(kTwo);
  const Lease most = take_lease({.memory = 30 * kGiB});
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "not set");
  const std::string busy = refusal<LeaseBusy>({.n = 2, .memory = 15 * kGiB});
  EXPECT_TRUE(has(busy, "asked for 2 GPUs with 15.0 GiB each, 1 has that now")) << busy;
  EXPECT_TRUE(has(busy, "promised 30.0 GiB")) << busy;
  EXPECT_TRUE(has(refusal<LeaseBusy>({.n = 2, .memory = 15 * kGiB, .wait = milliseconds(30)}), "waited "));
  int times = 0;
  EXPECT_TRUE(has(refusal<LeaseBusy>({.n = 2,
                                      .memory = 15 * kGiB,
                                      .wait = ChoiceRequest::kForEver,
                                      .cancelled = [&times] { return ++times == 2; }}),
                  "given up after "));
  EXPECT_TRUE(has(refusal<std::invalid_argument>({.memory = 81 * kGiB}), "81.0 GiB"));
  EXPECT_TRUE(has(refusal<std::invalid_argument>({.n = 0}), "asked for 0 GPUs"));
  EXPECT_TRUE(has(refusal<std::invalid_argument>({.vendor = "intel"}), "expected nvidia or amd"));
  EXPECT_TRUE(has(refusal<std::runtime_error>({.vendor = "amd"}), "none is AMD's"));
  environment_.set("CUDA_VISIBLE_DEVICES", "");
  EXPECT_EQ(refusal<std::runtime_error>({}), "CUDA_VISIBLE_DEVICES gives this process no GPU");
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(directory_.files(), 1);
}

TEST_F(ChoiceTest, ALeaseIsWholeUnlessBytesAreNamedAndChanges) {
  const test::FakeGpus gpus(kTwo);
  Lease whole = take_lease();  // A is in use without a lease.
  EXPECT_EQ(whole.uuids(), Uuids{kB});
  EXPECT_TRUE(whole.exclusive());
  EXPECT_EQ(whole.id().size(), 16U);
  whole.release();
  EXPECT_FALSE(whole.held());
  Lease part = take_lease({.memory = 4 * kGiB, .job = "a test"});
  EXPECT_FALSE(part.exclusive());
  part.resize(5 * kGiB);
  EXPECT_EQ(part.claims().at(kA), 5 * kGiB);
  EXPECT_THROW(part.resize(41 * kGiB), LeaseBusy);
  EXPECT_EQ(part.claims().at(kA), 5 * kGiB);
  part.renew(milliseconds(1));
  usleep(5000);
  EXPECT_TRUE(part.held());
  EXPECT_FALSE(part.intact());
  EXPECT_THROW(part.renew(milliseconds(1000)), std::runtime_error);
  EXPECT_THROW((void)adopt_lease(), std::invalid_argument);
  // A part of the lease with which the process was started.
  const Lease outer = take_lease({.memory = 10 * kGiB});
  environment_.set("INNKEEPER_LEASE", outer.id());
  EXPECT_EQ(uuids({.memory = 10 * kGiB}), outer.uuids());
  EXPECT_TRUE(has(refusal<std::invalid_argument>({.memory = 11 * kGiB}), "11.0 GiB"));
}

TEST_F(ChoiceTest, AChildOfForkHasItNotUnlessShared) {
  const test::FakeGpus gpus(kTwo);
  Choice parent = auto_choice();
  EXPECT_EQ(test::wait_for(test::in_child([&parent] {
              if (parent.lease().held() || variable("CUDA_VISIBLE_DEVICES") != kA) return 1;
              {
                const Choice own = auto_choice();
                if (own.uuids() != Uuids{kB} || variable("CUDA_VISIBLE_DEVICES") != kB) return 2;
              }
              const Choice ends_here = std::move(parent);
              return variable("CUDA_VISIBLE_DEVICES") == "not set" ? 0 : 3;
            })),
            0);
  EXPECT_TRUE(parent.lease().intact());
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), kA);
  parent.lease().share_with_children();
  EXPECT_EQ(test::wait_for(test::in_child([&parent] {
              const Choice ends_here = std::move(parent);
              return ends_here.lease().held() ? 0 : 1;
            })),
            0);
  EXPECT_TRUE(parent.lease().intact());
}

// A program that this process executes takes over the lease.
TEST_F(ChoiceTest, ALeaseIsHandedOn) {
  const test::FakeGpus gpus(kTwo);
  Lease lease = take_lease({.memory = kGiB});
  const int descriptor = lease.share_through_exec();
  environment_.set("INNKEEPER_LEASE_FD", std::to_string(descriptor));
  EXPECT_EQ(test::wait_for(test::in_child([id = lease.id()] {
              return adopt_lease().id() == id ? 0 : 1;  // The temporary lease ends here.
            })),
            0);
  EXPECT_FALSE(lease.intact());
}

TEST_F(ChoiceTest, OrdinalsAreCudasOwnOnceItIsStarted) {
  const test::FakeGpus gpus(kTwo);
  environment_.set("INNKEEPER_FAKE_CUDA", (std::string(kB) + "," + kA));
  const auto start_cuda = [] {
    void* library = dlopen((test::fake_nvml_path().parent_path() / "libcuda.so.1").c_str(), RTLD_NOW);
    return reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"))(0) == 0;
  };
  EXPECT_EQ(test::wait_for(test::in_child([&] {
              if (!start_cuda()) return 1;
              const Choice both = auto_choice({.n = 2, .memory = kGiB});
              if (both.uuids() != Uuids{kA, kB} || both.ordinals() != std::vector<int>{1, 0}) return 2;
              return 0;
            })),
            0);
  EXPECT_EQ(test::wait_for(test::in_child([&] {
              const Choice first = auto_choice();
              if (!start_cuda() || first.ordinals() != std::vector<int>{0}) return 1;
              if (uuids({.mode = ChoiceMode::ratio}) != Uuids{kA}) return 2;  // CUDA sees no other GPU.
              return 0;
            })),
            0);
  EXPECT_EQ(test::wait_for(test::in_child([&] {
              const Choice first = auto_choice();
              environment_.set("CUDA_VISIBLE_DEVICES", kB);
              if (!start_cuda()) return 1;
              try {
                (void)first.ordinals();
              } catch (const std::runtime_error& error) {
                return has(error.what(), std::string("CUDA cannot use ") + kA) &&
                               has(error.what(), std::string("it sees ") + kB)
                           ? 0
                           : 2;
              }
              return 3;
            })),
            0);
}

TEST_F(ChoiceTest, TheAllocatorsPartLeavesMemoryForTheContext) {
  const test::FakeGpus gpus(kTwo);
  EXPECT_EQ(auto_choice({.memory = 8 * kGiB}).memory_fractions(), std::vector<double>{7.5 / 80});
  EXPECT_EQ(auto_choice({.memory = kGiB / 2}).memory_fractions(), std::vector<double>{0.25 / 80});
  EXPECT_EQ(auto_choice().memory_fractions(), std::vector<double>{1});
}

TEST_F(ChoiceTest, OneVendorsGpusAloneAreChosenAndShown) {
  const test::FakeGpus nvidia(kTwo);
  const test::FakeAmdGpus amd(kAmdTwo);
  environment_.set("HIP_VISIBLE_DEVICES", "1,0");
  {
    const Choice best = auto_choice();
    EXPECT_EQ(best.uuids(), Uuids{kC});
    EXPECT_EQ(variable("ROCR_VISIBLE_DEVICES"), kC);
    // HIP counts within the devices that ROCR leaves visible.
    EXPECT_EQ(variable("HIP_VISIBLE_DEVICES"), "0");
    EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "");
    EXPECT_EQ(best.ordinals(), std::vector<int>{0});
    // Three GPUs are free, but not of one vendor: the choice prefers GPUs without a lease.
    EXPECT_EQ(uuids({.n = 2}), (Uuids{kA, kB}));
    EXPECT_EQ(uuids({.n = 2, .vendor = "amd"}), (Uuids{kC, kD}));
    const Choice other = auto_choice({.vendor = "nvidia"});
    EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), kA);
    EXPECT_EQ(variable("ROCR_VISIBLE_DEVICES"), kC);
    EXPECT_EQ(other.ordinals(), std::vector<int>{0});
    EXPECT_EQ(best.ordinals(), std::vector<int>{0});
  }
  EXPECT_EQ(variable("HIP_VISIBLE_DEVICES"), "1,0");
  EXPECT_EQ(variable("ROCR_VISIBLE_DEVICES"), "not set");
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "not set");
  {
    const Choice two = auto_choice({.n = 2, .vendor = "nvidia"});
    EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), std::string(kA) + "," + kB);
    EXPECT_EQ(variable("ROCR_VISIBLE_DEVICES"), "");  // The AMD GPUs were not leased.
  }
  const std::string never = refusal<std::invalid_argument>({.n = 3});
  EXPECT_TRUE(has(never, "(of one vendor, who has 2)")) << never;
  const Choice first = auto_choice({.exclusive = true});
  const std::string busy = refusal<LeaseBusy>({.n = 2, .memory = 100 * kGiB});
  EXPECT_TRUE(has(busy, "1 has that now (of one vendor, who has 2)")) << busy;
}

// A program reads back the GPUs that it was shown.
TEST_F(ChoiceTest, WhatIsShownIsReadBack) {
  const test::FakeGpus nvidia(kTwo);
  const test::FakeAmdGpus amd(kAmdTwo);
  const telemetry::Snapshot gpus = telemetry::snapshot(telemetry::Wanted::nothing);
  const telemetry::Variables odd{"1", "0x1", "0", std::nullopt};
  for (const Uuids& shown : {Uuids{}, Uuids{kB}, Uuids{kB, kA}, Uuids{kD}, Uuids{kD, kC}, Uuids{kA, kD}}) {
    for (const telemetry::Variables& before : {telemetry::Variables(), odd})
      EXPECT_EQ(visible_with(showing(by_vendor(shown, gpus), before), gpus).uuids, shown);
  }
}

}  // namespace
}  // namespace innkeeper
