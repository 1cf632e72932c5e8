#include "torch/growth.h"

#include "torch/switch_setting.h"

namespace innkeeper::torch_layer {
namespace {

SwitchSetting& setting() {
  static SwitchSetting it("INNKEEPER_GROWTH");
  return it;
}

}  // namespace

bool grows() { return setting().get(); }
void set_grows(bool grows) { setting().set(grows); }
void check_growth_setting() { setting().check(); }

}  // namespace innkeeper::torch_layer
