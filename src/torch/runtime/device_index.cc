#include "torch/runtime/device_index.h"

#include <c10/util/Exception.h>

#include "config/machine.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper::torch_layer {

int local_rank() {
  static const int rank = local_rank_from_environment().value_or(-1);
  return rank;
}

void check_device_index(c10::DeviceIndex index, bool may_be_rank) {
  if (index <= 0 || (may_be_rank && index == local_rank())) return;
  TORCH_CHECK(false, "there is one managed device, managed:0, and no managed:", static_cast<int>(index),
              ": write \"managed\". All nodes are in it; to place by hand use innkeeper.on(node), and under "
              "torchrun LOCAL_RANK is the process's home");
}

}  // namespace innkeeper::torch_layer
