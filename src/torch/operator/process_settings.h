// Settings of PyTorch for the whole process that kernels read, such as oneDNN's switch. A recorded call
// (recorded_operator.h) makes the same bits only under the same settings.
//
// PyTorch keeps these settings in its global context, where the kernels of every thread read them at any
// time. So the engine never restores old settings to run a call again: kernels of other threads would read
// them. Instead, before a setting changes, the engine recomputes all discarded blocks. It never discards a
// block that was made under other settings. Python's setters use SettingChange (process_settings.py). If C++
// code changes a setting, the next run of a call under the old one notices this and fails.
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

// While an object of this class lives, the engine discards no block. The constructor recomputes all discarded
// blocks, and throws if there is no free space for them. Objects may be nested. Not to be used within an
// operator.
class IK_EXPORT SettingChange {
 public:
  SettingChange();
  ~SettingChange();
  SettingChange(const SettingChange&) = delete;
  SettingChange& operator=(const SettingChange&) = delete;

  static bool under_way();
};

}  // namespace innkeeper::torch_layer
