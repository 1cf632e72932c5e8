// One operator whose operand is on the host, at an accelerator that is full of a dirty block: a fetch with one dirty
// victim. Prints the instrumented functions that it enters (+) and leaves (-), as offsets in this program.
#include <dlfcn.h>

#include <cstdio>
#include <vector>

#include "support/machine.h"

namespace {

struct Step {
  void* function;
  char kind;
};
bool traced = false;
std::vector<Step>& steps() {
  static std::vector<Step> all;
  return all;
}

}  // namespace

extern "C" {
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void* function, void*) {
  if (traced) steps().push_back({function, '+'});
}
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void* function, void*) {
  if (traced) steps().push_back({function, '-'});
}
}

int main() {
  using namespace innkeeper;
  test::Machine machine({.budget = Bytes(2 * test::kSize)});
  const NodeId accelerator = machine.sim();
  const auto filled_at = [&machine](NodeId node) {
    Block* const block = machine->create(Bytes(test::kSize));
    (void)machine.write(*block, node, test::Contents(test::kSize));
    return block;
  };
  Block* const operand = filled_at(machine->host());
  Block* const victims[] = {filled_at(accelerator), filled_at(accelerator)};
  Access access{.block = operand};
  steps().reserve(4096);
  traced = true;
  const Status gathered = machine->acquire(accelerator, std::span(&access, 1));
  if (gathered.ok()) machine->release(accelerator, std::span(&access, 1));
  traced = false;
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&main), &self);
  const auto base = reinterpret_cast<uintptr_t>(self.dli_fbase);
  for (const Step& step : steps())
    std::printf("%c %zx\n", step.kind, reinterpret_cast<uintptr_t>(step.function) - base);
  const bool is_moved = machine->glance(accelerator).evictions == 1;
  machine->destroy(operand);
  for (Block* block : victims) machine->destroy(block);
  return gathered.ok() && is_moved ? 0 : 1;
}
