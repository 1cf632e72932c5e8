#include "trace/recorder.h"

#include <algorithm>
#include <utility>

namespace innkeeper::trace {

void Recorder::start(size_t max_lines) {
  MutexLock lock(mutex_);
  text_.clear();
  lines_ = dropped_ = 0;
  max_lines_ = max_lines;
  on_.store(true, std::memory_order_relaxed);
}

std::string Recorder::stop() {
  on_.store(false, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  if (dropped_ != 0) text_ += "M dropped " + std::to_string(dropped_) + "\n";
  return std::exchange(text_, std::string());
}

void Recorder::op(std::string_view name, const Work& work, std::span<const RecordedAccess> accesses) {
  if (!on()) return;
  std::string line = "O ";
  line.append(name);
  if (work.kernels != 0) {
    line += " =" + std::to_string(static_cast<int64_t>(work.flops)) + ',' +
            std::to_string(static_cast<int64_t>(work.bytes)) + ',' + std::to_string(work.kernels);
  }
  for (const RecordedAccess& access : accesses) {
    line += ' ' + std::to_string(static_cast<uint64_t>(access.block)) + ':' +
            std::to_string(access.size.count()) + static_cast<char>(access.kind);
  }
  append(line);
}

void Recorder::freed(BlockId block) {
  if (on()) append("F " + std::to_string(static_cast<uint64_t>(block)));
}

void Recorder::mark(std::string_view text) {
  if (!on()) return;
  std::string line = "M ";
  line.append(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  append(line);
}

void Recorder::append(std::string_view line) {
  MutexLock lock(mutex_);
  if (!on_.load(std::memory_order_relaxed)) return;
  if (lines_ == max_lines_) {
    ++dropped_;
    return;
  }
  ++lines_;
  text_.append(line);
  text_.push_back('\n');
}

}  // namespace innkeeper::trace
