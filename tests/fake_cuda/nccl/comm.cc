#include "nccl/comm.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace fake_nccl {
namespace {

constexpr std::chrono::seconds kPatience(60);

// Writes the whole file or none.
bool write(const std::string& path, const std::string& bytes) {
  const std::string fresh = path + ".new";
  std::ofstream(fresh, std::ios::binary) << bytes;
  return std::rename(fresh.c_str(), path.c_str()) == 0;
}

bool read(const std::string& path, std::string& bytes) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    if (file) {
      std::ostringstream all;
      all << file.rdbuf();
      bytes = std::move(all).str();
      return true;
    }
    if (std::chrono::steady_clock::now() > end) {
      std::fprintf(stderr, "fake_nccl: %s did not come\n", path.c_str());
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

std::string new_directory() {
  const char* temporary = std::getenv("TMPDIR");
  std::string directory = std::string(temporary == nullptr ? "/tmp" : temporary) + "/fake_nccl.XXXXXX";
  return ::mkdtemp(directory.data()) == nullptr ? std::string() : directory;
}

Comm::~Comm() {
  std::error_code ignored;
  write(directory_ + "/left." + std::to_string(rank_), "");
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!std::filesystem::exists(directory_ + "/left." + std::to_string(rank), ignored)) return;
  }
  std::filesystem::remove_all(directory_, ignored);
}

std::string Comm::path(uint64_t number, int rank) const {
  return directory_ + "/" + std::to_string(number) + "." + std::to_string(rank);
}

std::string Comm::path_between(int from, int to, uint64_t number) const {
  return directory_ + "/from." + std::to_string(from) + ".to." + std::to_string(to) + "." +
         std::to_string(number);
}

bool Comm::exchange(const std::string& mine, std::vector<std::string>& all) {
  const uint64_t number = done_++;
  if (number >= 2) std::remove(path(number - 2, rank_).c_str());
  if (!write(path(number, rank_), mine)) return false;
  all.resize(static_cast<size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!read(path(number, rank), all[static_cast<size_t>(rank)])) return false;
  }
  return true;
}

bool Comm::send(int to, const std::string& bytes) {
  return write(path_between(rank_, to, sent_[to]++), bytes);
}

bool Comm::receive(int from, std::string& bytes) {
  const std::string path = path_between(from, rank_, received_[from]++);
  if (!read(path, bytes)) return false;
  std::remove(path.c_str());
  return true;
}

}  // namespace fake_nccl
