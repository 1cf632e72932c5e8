// Exit codes of the program, for scripts: one for each case that a caller may need to distinguish. They are
// the numbers of sysexits.h, which jobs hardly use themselves, so that `run` can pass on its job's.
// docs/innkeeper.1 and `innkeeper --help` list them from the table below.
#pragma once

#include <array>

namespace innkeeper::cli {

enum ExitCode : int {
  kDone = 0,
  kTrouble = 1,
  kUsage = 64,
  kNever = 65,
  kNoLease = 66,
  kNoGpu = 69,
  kInternal = 70,
  kDriver = 71,
  kDirectory = 73,
  kOutput = 74,
  kBusy = 75,
  kNotYours = 77,
  kSetting = 78,
  kCannotRun = 126,
  kNotFound = 127,
};

struct ExitMeaning {
  int code;
  const char* meaning;
};

inline constexpr std::array kExitMeanings = {
    ExitMeaning{kDone, "done"},
    ExitMeaning{
        kTrouble,
        "doctor found trouble, a job that was waited for did not succeed, or replay had too little room"},
    ExitMeaning{kUsage, "the command line makes no sense"},
    ExitMeaning{kNever, "this machine can never grant the request"},
    ExitMeaning{kNoLease, "there is no such lease or job"},
    ExitMeaning{kNoGpu, "no GPU can be seen, or none is given to this process"},
    ExitMeaning{kInternal, "an error inside the program"},
    ExitMeaning{kDriver, "the GPUs' driver does not work: innkeeper doctor says why"},
    ExitMeaning{kDirectory, "the lease directory, the queue, or another file, cannot be used"},
    ExitMeaning{kOutput, "the output cannot be written"},
    ExitMeaning{kBusy, "not now: what was asked for is leased or in use"},
    ExitMeaning{kNotYours, "the lease is another user's, or only root may do it"},
    ExitMeaning{kSetting, "what INNKEEPER_NODES says makes no sense"},
    ExitMeaning{kCannotRun, "run: the command cannot be executed"},
    ExitMeaning{kNotFound, "run: the command was not found; slurm: there is no sbatch"},
};

}  // namespace innkeeper::cli
