// Core's devices shared by threads, for longer than in tests/unit and under ThreadSanitizer.
#include "support/device_contract.h"

#include <gtest/gtest.h>

#include "support/core_rigs.h"

namespace innkeeper::test {
namespace {

class SharedDevice : public testing::TestWithParam<RigKind> {};

TEST_P(SharedDevice, IsSharedByThreads) {
  const ContractCheck check{"ThreadsShareIt", contract::threads_share_it};
  EXPECT_EQ(verdict(GetParam(), check, /*steps=*/400), "");
}

INSTANTIATE_TEST_SUITE_P(Devices, SharedDevice, testing::ValuesIn(core_kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace innkeeper::test
