#include "device/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

namespace innkeeper {

std::optional<int> numa_node_of(const std::string& pci_address, const std::string& sys) {
  std::ifstream file(sys + "/bus/pci/devices/" + pci_address + "/numa_node");
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;  // -1: the machine has one node, or does not tell.
  return node;
}

Status prefer_numa_node(void* data, size_t size, int node) {
  constexpr size_t kWord = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 1024 / kWord> nodes{};
  if (node < 0 || static_cast<size_t>(node) >= nodes.size() * kWord)
    return Status(Code::invalid_argument, "there is no NUMA node " + std::to_string(node));
  nodes[static_cast<size_t>(node) / kWord] = 1UL << (static_cast<size_t>(node) % kWord);
  // The call needs no libnuma, which only wraps it.
  if (::syscall(SYS_mbind, data, size, MPOL_PREFERRED, nodes.data(), nodes.size() * kWord + 1, 0) == 0)
    return {};
  return Status(Code::unavailable, "NUMA node " + std::to_string(node) + ": " + std::strerror(errno));
}

}  // namespace innkeeper
