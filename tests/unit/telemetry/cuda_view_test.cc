// Which GPU an ordinal of CUDA is, in this process, by a fake driver in the place of the real one. Each test
// runs in a child, since a driver can be started once.
#include "telemetry/cuda_view.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "lease/here.h"
#include "support/child.h"
#include "support/environment.h"
#include "support/fake_gpus.h"
#include "support/temporary_lease_directory.h"

namespace innkeeper::telemetry {
namespace {

using test::holds_in_child;

constexpr const char* kA = "GPU-aaaaaaaa-0000-4000-8000-000000000001";
constexpr const char* kB = "GPU-bbbbbbbb-0000-4000-8000-00000000000b";
constexpr const char* kPart = "MIG-cccccccc-0000-4000-8000-000000000003";

std::string script() {
  return "gpu " + std::string(kA) + "\n bus 00000000:01:00.0\n name A\n memory 10G 0 0\ngpu " + kB +
         "\n bus 00000000:02:00.0\n name B\n memory 10G 0 0\n" +
         "gpu GPU-dddddddd-0000-4000-8000-000000000004\n bus 00000000:03:00.0\n mig 7\ninstance " + kPart +
         " 1 0\n memory 5G 0 0\n";
}

// Loads the fake driver, and starts it on request. False: a step failed.
bool load_cuda(bool start) {
  void* library = dlopen((test::fake_nvml_path().parent_path() / "libcuda.so.1").c_str(), RTLD_NOW);
  if (library == nullptr) return false;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  return init != nullptr && (!start || init(0) == 0);
}

TEST(CudaView, NothingIsKnownBeforeCudaIsStarted) {
  const test::FakeGpus gpus(script());
  EXPECT_TRUE(holds_in_child([] { return !cuda_ordinals(); }));
  EXPECT_TRUE(holds_in_child([] { return load_cuda(false) && !cuda_ordinals(); }));
}

TEST(CudaView, OrdinalsAreCudasOwn) {
  const test::FakeGpus gpus(script());
  test::Environment environment;
  environment.set("INNKEEPER_FAKE_CUDA", std::string(kB) + "," + kA);  // Lists the fastest GPU first.
  environment.remove("CUDA_VISIBLE_DEVICES");
  const auto view = [] { return cuda_view(snapshot(Wanted::nothing)); };
  EXPECT_TRUE(holds_in_child([&] { return load_cuda(true) && view() == std::vector<std::string>{kB, kA}; }));
  // CUDA does not read the variable after its start.
  EXPECT_TRUE(holds_in_child([&] {
    environment.set("CUDA_VISIBLE_DEVICES", "1");
    const bool good = load_cuda(true);
    environment.set("CUDA_VISIBLE_DEVICES", kB);
    return good && view() == std::vector<std::string>{kA} &&
           lease::given_here().value() == std::vector<std::string>{kA};
  }));
}

TEST(CudaView, InstancesAndStrangersToo) {
  const test::FakeGpus gpus(script());
  test::Environment environment;
  environment.set("INNKEEPER_FAKE_CUDA", std::string(kPart) + ",GPU-eeeeeeee-0000-4000-8000-00000000000e");
  environment.remove("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(holds_in_child([] {
    return load_cuda(true) && cuda_view(snapshot(Wanted::nothing)) == std::vector<std::string>{kPart, ""} &&
           lease::given_here().value() == std::vector<std::string>{kPart};
  }));
}

TEST(CudaView, BeforeCudaIsStartedTheVariableDecides) {
  const test::FakeGpus gpus(script());
  test::Environment environment;
  environment.set("CUDA_VISIBLE_DEVICES", kB);
  EXPECT_EQ(lease::given_here().value(), std::vector<std::string>{kB});
  const Snapshot now = snapshot(Wanted::nothing);
  EXPECT_EQ(lease::given_by({}, now).value(), (std::vector<std::string>{kA, kB, kPart}));
  EXPECT_EQ(lease::given_by({.cuda = ""}, now).status().code(), Code::unavailable);
  // Two models, and indices: only CUDA knows the order.
  const auto unclear = lease::given_by({.cuda = "0"}, now);
  ASSERT_FALSE(unclear.ok());
  EXPECT_NE(unclear.status().message().find("CUDA_DEVICE_ORDER"), std::string::npos);
}

TEST(CudaView, LeasingHereTakesASnapshotForEachAttempt) {
  const test::TemporaryLeaseDirectory directory;
  test::Environment environment;
  environment.set("INNKEEPER_LEASE_DIR", directory.path());
  const test::FakeGpus gpus(script());
  lease::Request request;
  request.memory = GiB(8);
  request.allowed = {kA};
  lease::Lease first = lease::acquire_here(request).value();
  EXPECT_EQ(first.uuids(), kA);
  EXPECT_EQ(lease::acquire_here(request).status().code(), Code::busy);
  EXPECT_TRUE(lease::resize_here(first, GiB(2)).ok());
  EXPECT_TRUE(lease::acquire_here(request).ok());
  EXPECT_EQ(lease::resize_here(first, GiB(11)).code(), Code::busy);
}

TEST(CudaView, WithoutADriverOneLineSaysSo) {
  test::Environment environment;
  environment.set("INNKEEPER_NVML", "/nowhere/libnvidia-ml.so.1");
  EXPECT_TRUE(holds_in_child([] {
    const auto given = lease::given_here();
    return !given.ok() && given.status().message().find("no GPU can be seen: ") == 0;
  }));
}

TEST(CudaView, DigitsOfEveryForm) {
  EXPECT_EQ(uuid_digits("GPU-8F6C1A2B-0000-4000-8000-00000000000f"), "8f6c1a2b00004000800000000000000f");
  EXPECT_EQ(uuid_digits("MIG-8f6c1a2b-0000-4000-8000-00000000000f"), "8f6c1a2b00004000800000000000000f");
  EXPECT_EQ(uuid_digits(""), "");
}

}  // namespace
}  // namespace innkeeper::telemetry
