// Settings of PyTorch for the whole process that kernels read, such as oneDNN's switch. A recorded call
// (recorded_operator.h) makes the same bits only under the same settings.
//
// PyTorch keeps these settings in its global context, where the kernels of every thread read them at any
// time. So the engine never puts old settings back to run a call again: kernels of other threads would read
// them. Instead, everything that was dropped is computed again before a setting changes. What was made under
// other settings is not dropped any more. Python's setters take care of this (process_settings.py). A setter
// that is called from C++ is noticed when a call is to be run again, which then fails.
#pragma once

#include <cstdint>

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

class ProcessSettings {
 public:
  static ProcessSettings now();
  bool operator==(const ProcessSettings&) const = default;

 private:
  uint64_t bits_ = 0;
};

// Nothing is dropped while an object of this class lives. The constructor computes everything again that was
// dropped, and throws if there is no room for it. Objects may be nested. Not to be used within an operator.
class IK_EXPORT SettingChange {
 public:
  SettingChange();
  ~SettingChange();
  SettingChange(const SettingChange&) = delete;
  SettingChange& operator=(const SettingChange&) = delete;

  static bool under_way();
};

}  // namespace innkeeper::torch_layer
