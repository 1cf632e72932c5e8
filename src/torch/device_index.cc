#include "torch/device_index.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "innkeeper/torch/runtime.h"

namespace innkeeper::torch_layer {
namespace {

int rank_from_environment() {
  const char* const text = std::getenv("LOCAL_RANK");
  if (text == nullptr) return -1;
  const std::string_view all(text);
  int rank = -1;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), rank);
  return error == std::errc() && end == all.data() + all.size() && rank >= 0 ? rank : -1;
}

}  // namespace

int local_rank() {
  static const int rank = rank_from_environment();
  return rank;
}

void check_device_index(c10::DeviceIndex index, bool may_be_rank) {
  if (index <= 0 || (may_be_rank && index == local_rank())) return;
  TORCH_CHECK(false, "there is one managed device, managed:0, and no managed:", static_cast<int>(index),
              ": write \"managed\". All nodes are in it; to place by hand use innkeeper.on(node), and under "
              "torchrun LOCAL_RANK is the process's home");
}

}  // namespace innkeeper::torch_layer
