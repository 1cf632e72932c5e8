// The options of `queue add` and `slurm submit`: one request language for both, in addition to the options
// of pick and run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "queue/job.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace innkeeper::cli {

class JobOptions {
 public:
  // Requires: this outlives `command`'s parsing.
  void add_to(CLI::App& command);

  // Returns the requested job, without `after`. Fails with kUsage.
  queue::JobSpec spec(const std::vector<std::string>& words) const;
  // Arguments of --after and --after-any: job numbers of the job's own user.
  const std::vector<std::string>& after() const { return after_; }
  const std::vector<std::string>& after_any() const { return after_any_; }
  // Arguments of --env.
  const std::vector<std::string>& variables() const { return variables_; }
  bool without_gpus() const { return gpus_ == "0"; }
  const std::string& gpus() const { return gpus_; }
  bool memory_named() const { return !memory_.empty(); }
  // Requested memory on each GPU; none: no size is named.
  std::optional<Bytes> memory() const;
  bool memory_auto() const { return memory_ == "auto"; }

 private:
  std::string gpus_ = "1", memory_, by_, time_, grace_, name_, directory_, notify_, array_;
  bool share_ = false, exclusive_ = false, linger_ = false;
  int priority_ = 0, retries_ = 0, cpus_ = 1;
  std::vector<std::string> after_, after_any_, sweep_, variables_;
};

}  // namespace innkeeper::cli
