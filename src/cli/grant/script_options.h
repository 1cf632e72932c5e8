// innkeeper run --managed and --nproc: a Python script, made for CUDA, in several processes, or both.
//
//   --managed   by `python -m innkeeper`: what the script calls cuda is the managed device
//   --nproc N   by PyTorch's torchrun, in N processes that share the lease
//
// Which Python: --python, else that of the environment which is active (VIRTUAL_ENV), else the one beside
// this program, where installing the package puts it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace innkeeper::cli {

class ScriptOptions {
 public:
  // Requires: this outlives `command`'s parsing.
  void add_to(CLI::App& command);
  // Fails with kUsage if they make no sense.
  void check() const;
  // Whether the words are a script and not a command.
  bool wanted() const { return managed_ || nproc_given(); }
  // May its words stand without -- before them?
  bool loose() const { return managed_; }
  // Python, the modules that run it, and the script's words. Fails with kNotFound where there is no Python,
  // with kUsage where the words are no script.
  std::vector<std::string> command(const std::vector<std::string>& script) const;
  // Whether the script will look for GPUs, and the machine has any that are not all hidden from this process.
  bool takes_gpus() const;
  // How many it runs in: 1 without --nproc.
  int processes() const { return nproc_; }
  // How many processes share a GPU of a lease of so many.
  int sharers(int gpus) const;

 private:
  bool nproc_given() const;
  static bool is_interpreter(const std::string& word);

  bool managed_ = false;
  int nproc_ = 1;
  std::string python_;
  CLI::Option* nproc_option_ = nullptr;
};

}  // namespace innkeeper::cli
