// A communicator: processes that read each other's files in one directory.
//
// Every rank takes part in every collective in the same order, and waits for all. So when a rank is at its
// n-th, all ranks have read its file of the (n-2)-th, and the rank removes that file.
//
// Thread safety: none is needed. A communicator's work is on streams of one GPU, in order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nccl/abi.h"

namespace fake_nccl {

class Comm {
 public:
  Comm(std::string directory, int rank, int ranks)
      : directory_(std::move(directory)), rank_(rank), ranks_(ranks) {}
  // The last of the ranks to go takes the directory with it.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Data of each rank, by rank; false if a rank does not come within a minute.
  bool exchange(const std::string& mine, std::vector<std::string>& all);
  bool send(int to, const std::string& bytes);
  bool receive(int from, std::string& bytes);

 private:
  std::string path(uint64_t number, int rank) const;
  std::string path_between(int from, int to, uint64_t number) const;

  const std::string directory_;
  const int rank_;
  const int ranks_;
  uint64_t done_ = 0;
  std::map<int, uint64_t> sent_, received_;
};

// A directory for a new communicator, in the id that its ranks are told; empty on failure.
std::string new_directory();

}  // namespace fake_nccl
