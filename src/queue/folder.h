// The folder of one user's queue, and what stands in it:
//
//   INNKEEPER_QUEUE_DIR   that one, made if it is missing
//   else                  $XDG_STATE_HOME/innkeeper/queue, else ~/.local/state/innkeeper/queue
//
//   queue.db        jobs and their history (SQLite, with its -wal and -shm)
//   runner.lock     the runner holds a kernel lock on it; says the runner's process. Never removed by us
//   runner.log      what the runner has to say
//   wake            touched by everybody who changed something: the runner and those who wait watch it
//   queue.db.*      what is kept of a database that was damaged (mend.h)
//   life/           one file for each attempt that runs (life.h)
//   output/         what jobs print: <job>.<attempt>.log
//
// It is for its owner alone (0700): environments may hold secrets, and who can write there can run commands
// as the owner. It must be on this machine: SQLite's shared memory and kernel locks do not work on network
// file systems, so these are refused.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace innkeeper::queue {

inline constexpr const char* kFolderVariable = "INNKEEPER_QUEUE_DIR";

class Folder {
 public:
  // As above.
  static Result<std::shared_ptr<const Folder>> open_default();
  static Result<std::shared_ptr<const Folder>> open(const std::string& path);

  const std::string& path() const { return path_; }  // absolute
  std::string database() const { return path_ + "/queue.db"; }
  std::string runner_lock() const { return path_ + "/runner.lock"; }
  std::string runner_log() const { return path_ + "/runner.log"; }
  std::string wake_file() const { return path_ + "/wake"; }
  std::string life_folder() const { return path_ + "/life"; }
  std::string output_folder() const { return path_ + "/output"; }
  std::string life(int64_t job, int attempt) const;
  std::string output(int64_t job, int attempt) const;

  // Tells the runner, and everybody who waits, to look again.
  void wake() const;

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace innkeeper::queue
