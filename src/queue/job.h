// A job, as it is asked for and as it is known. Plain data.
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

using JobId = int64_t;  // 1, 2, 3...; never used again

enum class State : uint8_t {
  queued,       // waits for its turn, its dependencies, cards or a slot
  running,      //
  done,         // ended with status 0
  failed,       // ended otherwise, ran out of time, or could not be started
  cancelled,    // by its user, or since a job that it needs did not succeed
  interrupted,  // it ran, and nobody knows how it ended: killed with its supervisor, or the machine was
};
const char* to_string(State state);
inline bool ended(State state) { return state != State::queued && state != State::running; }

// How an attempt ended.
enum class How : uint8_t {
  exited,       // `code` is its exit status
  signalled,    // `code` is the signal
  time_limit,   // stopped by us
  stopped,      // told to: cancelled
  not_started,  // `code` is the errno: no such program, no such folder
  unknown,      // interrupted
};
const char* to_string(How how);
// "exit 3", "signal 9", "No such file or directory", "time limit".
std::string ending_text(How how, int code);

// As Slurm's KillWait: time to save what a job has computed.
inline constexpr std::chrono::milliseconds kGrace{30'000};

// Another job that must have ended before.
struct Need {
  JobId job = 0;
  // However it ended; else it must have succeeded, and if it does not this one is cancelled.
  bool any = false;
  bool operator==(const Need&) const = default;
};

// --sweep lr=0.1,0.01
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

// What somebody asks for.
struct JobSpec {
  std::vector<std::string> command;  // not through a shell
  std::string directory;             // where it runs; empty: the caller's
  // "NAME=value"; none: the caller's, as it is now.
  std::optional<std::vector<std::string>> environment;
  std::string limits;  // umask, nice and ulimits (limits.h); empty: the caller's
  std::string name;    // for people; empty: the command's words
  // none: no card at all, but CPU slots. Its `wait`, `allowed`, `inside` and `key` do not count: a job always
  // waits, and has the cards that CUDA_VISIBLE_DEVICES (and its kin) of its environment names.
  std::optional<lease::Request> cards;
  int cpu_slots = 1;  // of a job without cards
  int priority = 0;   // higher goes first; then who was added first
  int retries = 0;    // how often it is run again after it failed or was interrupted
  std::optional<std::chrono::milliseconds> time_limit;  // of each attempt
  std::chrono::milliseconds grace = kGrace;             // between SIGTERM and SIGKILL where it is ended
  bool linger = false;  // goes on until what its program leaves behind has ended too, which is ended else
  std::vector<Need> after;
  std::string notify;  // run by `sh -c` when the job has ended for good; INNKEEPER_JOB_* say how
  // Many jobs at once: one for each index and each combination of the axes' values.
  std::vector<int64_t> indices;  // empty: no array
  std::vector<Axis> sweep;
};

// What a list shows of a job.
struct JobLine {
  JobId id = 0;
  JobId array = 0;  // the first job of its array; 0: it is alone
  State state = State::queued;
  bool held = false;  // paused by itself
  How how = How::exited;
  int code = 0;
  int priority = 0;
  int cards = 0;    // 0: CPU only
  Bytes memory;     // of each card; 0: whole cards
  int attempt = 0;  // 0: not begun yet
  int needs = 0;    // dependencies that have not ended
  int64_t added_ns = 0;
  int64_t started_ns = 0;  // of the last attempt
  int64_t ended_ns = 0;
  // Its name, or the beginning of its command, and its values if it is one of a sweep or array; printable.
  std::string title;
  bool program_ended = false;  // of a running one: what its program has left behind has not
};

// What there is of a job whose program has ended.
struct LeftBehind {
  How how = How::exited;  // the program
  int code = 0;
  bool ending = false;                 // it has been told to end
  std::vector<std::string> processes;  // "python (4711)", printable
};

struct Attempt {
  int number = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  std::string cards;  // UUIDs, comma-separated
  How how = How::unknown;
  int code = 0;
  Bytes peak_memory;  // of its fullest card, as measured; 0: unknown
  Bytes peak_host;    // the largest resident set of one of its processes
};

struct Job : JobLine {
  std::vector<std::string> command;  // with the sweep's values in it
  std::string directory;
  std::vector<std::string> environment;
  std::string limits;
  std::vector<Need> after;
  std::string by;  // lease::By as text
  std::optional<bool> exclusive;
  int cpu_slots = 1;
  int retries_left = 0;
  std::optional<std::chrono::milliseconds> time_limit;
  std::chrono::milliseconds grace = kGrace;
  bool linger = false;
  std::string notify;
  std::string reason;              // why it is where it is, if there is more to say
  std::optional<LeftBehind> left;  // of a running one
  std::vector<Attempt> attempts;
};

}  // namespace innkeeper::queue
