// Translates a job to Slurm's sbatch. Pure.
//
//   --gpus 2             --gres=gpu:2          --time 2h         --time=120 (minutes, rounded up)
//   --mem 8G --shard 1G  --gres=shard:8        --array, --sweep  --array=0-N, a case for each in the script
//   --gpus 0 --cpus 4    --cpus-per-task=4     --after 12        --dependency=afterok:12
//   --priority -3        --nice=300            --after-any 12    --dependency=afterany:12
//   --retry 2            a loop in the script  --name            --job-name
//   --env A=1            export in the script
//
// Slurm has no request for a part of a GPU's memory except shards, whose size only the cluster's
// administrator knows. Without --shard the job requests whole GPUs, and a note says so.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "queue/job.h"

namespace innkeeper::cli {

struct SbatchOptions {
  std::string output;
  std::vector<std::string> more;  // Options that are passed to sbatch unchanged.
  std::string shard;              // Size of a shard; empty: none is named.
  // Entries "NAME=VALUE", in addition to the variables that Slurm passes on.
  std::vector<std::string> variables;
};

struct Sbatch {
  std::vector<std::string> words;  // Command line: sbatch and its options.
  std::string script;              // Script for sbatch's standard input.
  std::vector<std::string> notes;  // Differences between the request and its translation.
};

// Fails if Slurm has no option for a part of the request.
Result<Sbatch> to_sbatch(const queue::JobSpec& spec, const std::vector<std::string>& after,
                         const std::vector<std::string>& after_any, const SbatchOptions& options);

std::string shell_quoted(const std::string& word);

}  // namespace innkeeper::cli
