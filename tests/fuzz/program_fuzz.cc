// Any bytes as calls to the engine: the first chooses a machine and a schedule, the others are a program for
// the model walk (tests/model/walk.h), whose model and invariants must hold.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "model/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace innkeeper;
  if (size == 0) return 0;
  const std::span<const test::WalkCase> cases = test::walk_cases();
  test::WalkOptions options = cases[data[0] % cases.size()].options;
  if (options.lanes > 1) return 0;  // The walk tests threads.
  options.machine.visibility = static_cast<sim::Visibility>(data[0] / cases.size() % 3);
  const test::WalkResult result = test::walk(options, test::program_of(std::span(data + 1, size - 1)));
  IK_CHECK(result.failure.empty(), result.failure);
  return 0;
}
