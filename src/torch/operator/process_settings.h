// What is set for all threads of the process, and kernels read: oneDNN's switch, say. Calls that are kept to
// be run again (kept_call.h) make the same bits only under the same settings.
//
// PyTorch keeps these settings in its global context, and every thread's kernels read them at every moment.
// So a call is never run again under other settings by putting back the old ones: threads beside would
// compute with them. What was dropped is computed again before a setting changes, and what was made before
// is kept, or copied, from then on. Python's setters are made to do so (process_settings.py); one that is
// called from C++ is noticed when the call is to be run again, which fails then.
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

// While a setting changes nothing is dropped. Begins by computing again all that was dropped, which throws
// where there is no room; may be nested. Not in an operator.
class IK_EXPORT SettingChange {
 public:
  SettingChange();
  ~SettingChange();
  SettingChange(const SettingChange&) = delete;
  SettingChange& operator=(const SettingChange&) = delete;

  static bool under_way();
};

}  // namespace innkeeper::torch_layer
