// A job as Slurm's sbatch wants it. Pure.
//
//   --gpus 2             --gres=gpu:2          --time 2h         --time=120 (minutes, rounded up)
//   --mem 8G --shard 1G  --gres=shard:8        --array, --sweep  --array=0-N, a case for each in the script
//   --gpus 0 --cpus 4    --cpus-per-task=4     --after 12        --dependency=afterok:12
//   --priority -3        --nice=300            --after-any 12    --dependency=afterany:12
//   --retry 2            a loop in the script  --name            --job-name
//   --env A=1            export in the script
//
// Slurm has no request for a part of a GPU's memory but shards, whose size only the cluster's administrator
// knows: without --shard a GPU is taken whole, with a note.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "queue/job.h"

namespace innkeeper::cli {

struct SbatchOptions {
  std::string output;
  std::vector<std::string> more;       // passed on as they are
  std::string shard;                   // a size
  std::vector<std::string> variables;  // "NAME=VALUE", beside those that Slurm passes on
};

struct Sbatch {
  std::vector<std::string> words;  // sbatch and its options
  std::string script;              // for its standard input
  std::vector<std::string> notes;  // what is not as was asked
};

// Fails with what Slurm has no words for.
Result<Sbatch> to_sbatch(const queue::JobSpec& spec, const std::vector<std::string>& after,
                         const std::vector<std::string>& after_any, const SbatchOptions& options);

// One word for a POSIX shell.
std::string shell_quoted(const std::string& word);

}  // namespace innkeeper::cli
