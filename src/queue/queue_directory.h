// The directory of one user's queue and its files:
//
//   INNKEEPER_QUEUE_DIR   the directory, created if it is missing
//   else                  $XDG_STATE_HOME/innkeeper/queue, else ~/.local/state/innkeeper/queue
//
//   queue.db        jobs and their history (SQLite, with its -wal and -shm)
//   runner.lock     locked by the runner (kernel lock); contains the runner's process id. Never removed by us
//   runner.log      the runner's messages
//   wake            touched after every change; the runner and waiting programs watch it
//   queue.db.*      copies of a database that was damaged (mend.h)
//   life/           one file for each running attempt (life.h)
//   output/         output of jobs: <job>.<attempt>.log
//
// Only the owner may access the directory (0700): environments may hold secrets, and a user with write access
// can run commands as the owner. It must be on a local file system: SQLite's shared memory and kernel locks
// do not work on network file systems, so open() refuses those.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace innkeeper::queue {

inline constexpr const char* kDirectoryVariable = "INNKEEPER_QUEUE_DIR";

class QueueDirectory {
 public:
  // Opens the default directory described above.
  static Result<std::shared_ptr<const QueueDirectory>> open_default();
  static Result<std::shared_ptr<const QueueDirectory>> open(const std::string& path);

  const std::string& path() const { return path_; }  // Absolute path.
  std::string database() const { return path_ + "/queue.db"; }
  std::string runner_lock() const { return path_ + "/runner.lock"; }
  std::string runner_log() const { return path_ + "/runner.log"; }
  std::string wake_file() const { return path_ + "/wake"; }
  std::string life_directory() const { return path_ + "/life"; }
  std::string output_directory() const { return path_ + "/output"; }
  std::string life(int64_t job, int attempt) const;
  std::string output(int64_t job, int attempt) const;

  // Tells the runner and every waiting program to look again.
  void wake() const;

 private:
  explicit QueueDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace innkeeper::queue
