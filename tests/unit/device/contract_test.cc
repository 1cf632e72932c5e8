// Checks Core's devices against the contract of device_api.h.
#include "support/device_contract.h"

#include <gtest/gtest.h>

#include "support/core_rigs.h"

namespace innkeeper::test {
namespace {

class DeviceContract : public testing::TestWithParam<ContractCase> {};

TEST_P(DeviceContract, IsKept) { EXPECT_EQ(verdict(GetParam().kind, GetParam().check, /*steps=*/25), ""); }

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, testing::ValuesIn(contract_cases(core_kinds())),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace innkeeper::test
