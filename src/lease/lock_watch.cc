#include "lease/lock_watch.h"

#include <signal.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/lines.h"
#include "base/log.h"
#include "base/namespaces.h"
#include "lease/process.h"

namespace innkeeper::lease {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{50};
constexpr milliseconds kAsleep{2000};
constexpr int kLooks = 20;
// All processes that share the lock count as one holder, even if they take turns.
const ProcessKey kSharing{};

struct Holder {
  int64_t pid = 0;
  bool shares = false;  // True: the process holds LOCK_SH, which this program never takes.
};
// Returns the processes that hold a flock on the file. Without `of_this_device` only the inode's number is
// compared: a file system with subvolumes reports one device in stat() and another in the list of locks.
std::vector<Holder> holders(const struct stat& file, bool of_this_device) {
  char device[32];
  std::snprintf(device, sizeof device, "%02x:%02x", major(file.st_dev), minor(file.st_dev));
  std::vector<Holder> found;
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    // Example line: "3: FLOCK  ADVISORY  WRITE 1234 00:19:5678 0 EOF"; a waiting process has "->"
    // before the kind.
    std::istringstream words(line);
    std::string number, kind, advisory, mode, place;
    int64_t pid = 0;
    if (!(words >> number >> kind >> advisory >> mode >> pid >> place) || kind != "FLOCK") continue;
    const size_t inode = place.rfind(':') + 1;
    if (place.substr(inode) != std::to_string(file.st_ino)) continue;
    if (!of_this_device || place.substr(0, inode - 1) == device) found.push_back({pid, mode == "READ"});
  }
  return found;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the user that started the process. A program that it executed may run as another user, and
// /proc/<pid> may belong to root.
std::optional<uid_t> real_user(const std::string& process) {
  std::ifstream status(process + "/status");
  std::string word;
  uid_t user = 0;
  while (status >> word)
    if (word == "Uid:" && status >> user) return user;
  return std::nullopt;
}

// Returns whether a control group of version 2 freezes the process. Version 1 shows a frozen
// process in state D.
bool frozen(const std::string& process) {
  std::ifstream groups(process + "/cgroup");
  std::string line, word;
  while (std::getline(groups, line)) {
    if (!line.starts_with("0::")) continue;
    std::ifstream events("/sys/fs/cgroup" + line.substr(3) + "/cgroup.events");
    int value = 0;
    while (events >> word >> value)
      if (word == "frozen") return value != 0;
  }
  return false;
}

std::string who_is(int64_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const std::string command = first_line(process + "/comm");
  const std::optional<uid_t> user = real_user(process);
  return "pid " + std::to_string(pid) + (command.empty() ? "" : " (" + printable(command) + ")") +
         (user ? " of " + user_name(*user) : "");
}

// Returns the process if all of its threads sleep or have ended. None: a thread runs, or the process cannot
// be seen or is root's. A process that is gone has left the lock to a forked child, and is not in the
// middle of a grant.
std::optional<ProcessKey> asleep(int64_t pid) {
  if (!proc_is_ours()) return std::nullopt;
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return ProcessKey{pid, 0};
  const std::string process = "/proc/" + std::to_string(pid);
  const std::vector<ProcessKey> line = process_line(pid);
  const std::optional<uid_t> user = real_user(process);
  if (line.empty() || !user || *user == 0 || user == unmapped_user() || frozen(process)) return std::nullopt;
  const std::string states = thread_states(pid);
  const bool asleep = !states.empty() && states.find_first_not_of("SZX") == std::string::npos;
  return asleep ? std::optional(line.front()) : std::nullopt;
}

}  // namespace

std::string holders_of_lock(const struct stat& file) {
  std::string text;
  for (const Holder& holder : holders(file, false)) text += (text.empty() ? "" : ", ") + who_is(holder.pid);
  return text;
}

void LockWatch::tell(const std::string& lock_path) {
  if (std::exchange(told_, true)) return;
  std::string text;
  for (const ProcessKey& process : holders_)
    text += (text.empty() ? "" : ", ") + who_is(process == kSharing ? sharing_ : process.pid);
  log(LogLevel::warn,
      lock_path + " is kept locked by " + text + ", who does nothing with it: GPUs are granted without it");
}

void LockWatch::look(const struct stat& file) {
  const auto now = Clock::now();
  if (now - last_ < kBetweenLooks) return;
  last_ = now;
  std::set<ProcessKey> found;
  for (const Holder& holder : holders(file, true)) {
    const std::optional<ProcessKey> sleeper = holder.shares ? kSharing : asleep(holder.pid);
    if (!sleeper) {
      found.clear();
      break;
    }
    found.insert(*sleeper);
    if (holder.shares) sharing_ = holder.pid;
  }
  if (found.empty() || found != holders_) {
    holders_ = std::move(found);
    since_ = now;
    looks_ = 0;
    told_ = false;
  }
  ++looks_;
}

bool LockWatch::only_kept() const {
  return !holders_.empty() && looks_ >= kLooks && last_ - since_ >= kAsleep;
}

bool LockWatch::unchanged(const struct stat& file) const {
  const std::vector<Holder> now = holders(file, true);
  for (const Holder& holder : now) {
    if (holder.shares) continue;
    const std::optional<ProcessKey> sleeper = asleep(holder.pid);
    if (!sleeper || !holders_.contains(*sleeper)) return false;
  }
  return !now.empty();
}

}  // namespace innkeeper::lease
