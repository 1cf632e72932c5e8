// A job as the user requests it and as the queue stores it. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "lease/request.h"

namespace innkeeper::queue {

using JobId = int64_t;  // Numbered 1, 2, 3...; a number is never used again.

enum class State : uint8_t {
  queued,       // Waits for its turn, its dependencies, GPUs or a CPU slot.
  running,      // The attempt lives.
  done,         // Ended with status 0.
  failed,       // Ended otherwise, exceeded its time limit, or could not be started.
  cancelled,    // Cancelled by its user, or because a job that it needs did not succeed.
  interrupted,  // Ran to an unknown end: killed with its supervisor, or with the machine.
};
const char* to_string(State state);
inline bool ended(State state) { return state != State::queued && state != State::running; }

// Way in which an attempt ended.
enum class How : uint8_t {
  exited,       // `code` is the exit status.
  signalled,    // `code` is the signal.
  time_limit,   // The supervisor ended it at its time limit.
  stopped,      // The user cancelled it.
  not_started,  // `code` is the errno, for example of a missing program or directory.
  unknown,      // The end was not recorded (interrupted).
};
const char* to_string(How how);
// Text such as "exit 3", "signal 9", "No such file or directory", "time limit".
std::string ending_text(How how, int code);

// Time between SIGTERM and SIGKILL, as Slurm's KillWait: a job can save its results.
inline constexpr std::chrono::milliseconds kGrace{30'000};

// A job that must end before another one starts.
struct Need {
  JobId job = 0;
  // True: any end satisfies the need. False: the job must succeed; if it fails,
  // the dependent job is cancelled.
  bool any = false;
  bool operator==(const Need&) const = default;
};

// One `--sweep` axis, for example lr=0.1,0.01.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

// Request for a job.
struct JobSpec {
  std::vector<std::string> command;  // Words of the command; no shell interprets them.
  std::string directory;             // Working directory; empty: the caller's.
  // Entries "NAME=value"; none: the caller's environment at add().
  std::optional<std::vector<std::string>> environment;
  std::string limits;  // Umask, nice value and ulimits (limits.h); empty: the caller's.
  std::string name;    // Name shown to people; empty: the command's words.
  // Request for GPUs; none: the job uses CPU slots and no GPU. The fields `wait`, `allowed`, `inside`
  // and `key` are ignored: a job always waits, and CUDA_VISIBLE_DEVICES (and its kin) of its
  // environment names its allowed GPUs.
  std::optional<lease::Request> gpus;
  int cpu_slots = 1;  // CPU slots of a job without GPUs.
  int priority = 0;   // Higher values start first; equal ones in the order of addition.
  int retries = 0;    // Number of further attempts after a failure or an interruption.
  std::optional<std::chrono::milliseconds> time_limit;  // Limit of each attempt; none: no limit.
  std::chrono::milliseconds grace = kGrace;  // Time between SIGTERM and SIGKILL when the job is ended.
  // True: the job goes on until the processes that its program leaves behind
  // have ended. False: they are ended.
  bool linger = false;
  std::vector<Need> after;
  // Command that `sh -c` runs once the job has ended for good; INNKEEPER_JOB_* describe the end.
  std::string notify;
  // A request may stand for many jobs: one for each index and each combination of the axes' values.
  std::vector<int64_t> indices;  // Indices of the array; empty: no array.
  std::vector<Axis> sweep;
};

// Summary of a job that a list shows.
struct JobLine {
  JobId id = 0;
  JobId array = 0;  // First job of its array; 0: the job belongs to no array.
  State state = State::queued;
  bool held = false;  // True: this job alone is paused.
  How how = How::exited;
  int code = 0;
  int priority = 0;
  int gpus = 0;     // Number of GPUs; 0: CPU only.
  Bytes memory;     // Memory on each GPU; 0: whole GPUs.
  int attempt = 0;  // Number of the last attempt; 0: no attempt yet.
  int needs = 0;    // Number of dependencies that have not ended.
  int64_t added_ns = 0;
  int64_t started_ns = 0;  // Start of the last attempt.
  int64_t ended_ns = 0;
  // Name or beginning of the command, with its values if the job is one of a sweep or array; printable.
  std::string title;
  // True: the job still runs, but only through processes that its program left behind.
  bool program_ended = false;
};

// Processes that live on after the job's program has ended.
struct LeftBehind {
  How how = How::exited;  // End of the program.
  int code = 0;
  bool ending = false;                 // True: the processes have been told to end.
  std::vector<std::string> processes;  // Entries such as "python (4711)", printable.
};

struct Attempt {
  int number = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  std::string gpus;  // GPU UUIDs, comma-separated.
  How how = How::unknown;
  int code = 0;
  Bytes peak_memory;  // Measured peak on the GPU where the job used most; 0: unknown.
  Bytes peak_host;    // Largest resident set of one of the job's processes.
};

struct Job : JobLine {
  std::vector<std::string> command;  // Words of the command, with the sweep's values substituted.
  std::string directory;
  std::vector<std::string> environment;
  std::string limits;
  std::vector<Need> after;
  std::string by;  // lease::By as text.
  std::optional<bool> exclusive;
  int cpu_slots = 1;
  int retries_left = 0;
  std::optional<std::chrono::milliseconds> time_limit;
  std::chrono::milliseconds grace = kGrace;
  bool linger = false;
  std::string notify;
  std::string reason;              // Why the job is in its state; empty: no further explanation.
  std::optional<LeftBehind> left;  // Present only for a running job whose program has ended.
  std::vector<Attempt> attempts;
};

}  // namespace innkeeper::queue
