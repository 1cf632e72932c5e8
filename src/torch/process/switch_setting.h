// A setting of the process that is on or off: the value set last, else its environment variable, else a
// default.
//
// Thread safety: all methods.
#pragma once

#include <atomic>
#include <cstdlib>

#include "config/text.h"
#include "torch/errors.h"

namespace innkeeper::torch_layer {

class SwitchSetting {
 public:
  explicit SwitchSetting(const char* variable, bool by_default = true)
      : variable_(variable), default_(by_default) {
    const Result<bool> said = read();
    on_ = said.ok() ? said.value() : default_;
  }
  bool get() const { return on_.load(std::memory_order_relaxed); }
  void set(bool on) { on_.store(on, std::memory_order_relaxed); }
  // Throws if the variable says neither on nor off.
  void check() const { throw_if_error(read().status(), ""); }

 private:
  Result<bool> read() const {
    const char* text = std::getenv(variable_);
    return text == nullptr || *text == '\0' ? default_ : parse_switch(variable_, text);
  }

  const char* const variable_;
  const bool default_;
  std::atomic<bool> on_{true};
};

}  // namespace innkeeper::torch_layer
