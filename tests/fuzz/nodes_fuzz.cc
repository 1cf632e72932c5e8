// Any text as INNKEEPER_NODES and, after the first line end, INNKEEPER_SIM; and as a size. An accepted text
// must make sense; a refusal must state its reason in one line.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/size.h"
#include "config/machine.h"

namespace {

using namespace innkeeper;

void check_refusal(const Status& status, std::string_view prefix) {
  IK_CHECK(status.code() == Code::invalid_argument, status.message());
  IK_CHECK(status.message().starts_with(prefix), status.message());
  IK_CHECK(status.message().find('\n') == std::string::npos, "a refusal is one line");
}

void check_machine(const MachineSpec& machine, Bytes memory) {
  std::set<std::string> names;
  int64_t simulated = 0;
  size_t hosts = 0;
  int tier = 0;
  for (const NodeSpec& node : machine.nodes) {
    IK_CHECK(names.insert(node.name).second, "two nodes have one name: " + node.name);
    const int own = node.kind == NodeKind::disk ? 2 : node.kind == NodeKind::host ? 1 : 0;
    IK_CHECK(own >= tier, "accelerators come first, then the host, then the disk");
    tier = own;
    IK_CHECK((node.kind == NodeKind::accelerator) == !node.accelerator.empty(), node.name);
    IK_CHECK(node.budget.has_value() || (node.kind == NodeKind::accelerator && !node.simulated),
             node.name + " has no budget");
    IK_CHECK(!node.budget.has_value() || node.budget->count() >= kAlignment, node.name + " holds nothing");
    if (node.kind == NodeKind::host) ++hosts;
    if (node.simulated) {
      simulated += node.budget->count();
      IK_CHECK(node.sim.capacity == *node.budget && node.sim.name == node.name);
    }
  }
  IK_CHECK(hosts == 1, "a machine has one host");
  IK_CHECK(machine.nodes.size() <= kMaxNodes);
  IK_CHECK(simulated <= memory.count(), "the simulated nodes are larger than the memory");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  const std::string_view nodes = text.substr(0, end);
  const std::string_view options = end == std::string_view::npos ? "" : text.substr(end + 1);
  const Bytes memory = GiB(64);
  const Result<MachineSpec> machine = parse_machine(nodes, options, memory);
  if (machine.ok()) {
    check_machine(machine.value(), memory);
  } else {
    check_refusal(machine.status(), "INNKEEPER_");
  }
  const Result<Bytes> bytes = parse_size(nodes);
  if (bytes.ok()) {
    const Result<Bytes> again = parse_size(std::to_string(bytes.value().count()) + "B");
    IK_CHECK(again.ok() && again.value() == bytes.value(), "a size is read as another");
  }
  return 0;
}
