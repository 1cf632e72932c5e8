// innkeeper run --managed and --nproc: runs a Python script made for CUDA on the managed device, in several
// processes, or both.
//
//   --managed   by `python -m innkeeper`: the script's CUDA device is the managed device
//   --nproc N   by PyTorch's torchrun, in N processes that share the lease
//
// Python is the one of --python, else that of the active environment (VIRTUAL_ENV), else the one beside this
// program, where installing the package puts it.
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
  // Fails with kUsage if the options make no sense.
  void check() const;
  // Returns whether the words are a script rather than a command.
  bool wanted() const { return managed_ || nproc_given(); }
  // Returns whether the script's words may stand without a preceding --.
  bool loose() const { return managed_; }
  // Returns Python, the modules that run the script, and the script's words. Fails with kNotFound if there is
  // no Python, and with kUsage if the words are no script.
  std::vector<std::string> command(const std::vector<std::string>& script) const;
  // Returns whether the script will look for GPUs, and the machine has some that are not all hidden
  // from this process.
  bool takes_gpus() const;
  // Number of processes; 1 without --nproc.
  int processes() const { return nproc_; }
  // Number of processes that share one GPU of a lease of `gpus` GPUs.
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
