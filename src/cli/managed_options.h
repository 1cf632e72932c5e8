// innkeeper run --managed script.py: a Python script made for CUDA on the managed device.
//
// It is run by `python -m innkeeper`. Which Python: --python, else that of the environment which is active
// (VIRTUAL_ENV), else the one beside this program, where installing the package puts it.
#pragma once

#include <string>
#include <vector>

#include "lease/request.h"

namespace CLI {
class App;
}

namespace innkeeper::cli {

class ManagedOptions {
 public:
  // Requires: this outlives `command`'s parsing.
  void add_to(CLI::App& command);
  // Fails with kUsage if they make no sense.
  void check() const;
  bool wanted() const { return managed_; }
  // Python, the module, and the script's words. Fails with kNotFound where there is no Python.
  std::vector<std::string> command(const std::vector<std::string>& script) const;
  // Whether the script will look for GPUs, and the machine has any.
  bool takes_gpus() const;
  // A lease of so much of each GPU is the nodes' budget, unless INNKEEPER_NODES says otherwise.
  void set_nodes(const lease::Request& request) const;

 private:
  bool managed_ = false;
  std::string python_;
};

}  // namespace innkeeper::cli
