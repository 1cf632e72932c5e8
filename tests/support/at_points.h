// Runs a test's function at the engine's test points (base/test_point.h).
#pragma once

#include <functional>
#include <utility>

#include "base/test_point.h"

namespace innkeeper::test {

// Calls `hook` at the engine's test points while it lives.
class AtPoints {
 public:
  explicit AtPoints(std::function<void(const char*)> hook) {
    hook_ = std::move(hook);
    test_point.store([](const char* name) { hook_(name); });
  }
  ~AtPoints() { test_point.store(nullptr); }
  AtPoints(const AtPoints&) = delete;
  AtPoints& operator=(const AtPoints&) = delete;

 private:
  inline static std::function<void(const char*)> hook_;
};

}  // namespace innkeeper::test
