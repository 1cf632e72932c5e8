// The options of pick, run and lease hold. lease/request.h parses their values, so that there is one grammar.
#pragma once

#include <string>

#include "lease/request.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace innkeeper::cli {

class RequestOptions {
 public:
  // Requires: this outlives `command`'s parsing.
  void add_to(CLI::App& command);
  // Fails with kUsage.
  lease::Request request() const;
  // Returns whether any of the options was given.
  bool given() const;
  bool count_given() const;

 private:
  std::string count_, memory_, by_, wait_;
  bool share_ = false, exclusive_ = false;
  CLI::Option *count_option_ = nullptr, *memory_option_ = nullptr, *by_option_ = nullptr,
              *wait_option_ = nullptr;
};

}  // namespace innkeeper::cli
