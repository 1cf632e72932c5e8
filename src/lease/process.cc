#include "lease/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "base/namespaces.h"

namespace innkeeper::lease {
namespace {

constexpr size_t kMaxDepth = 64;

std::string read_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buffer[4096];
  const ssize_t length = read(fd, buffer, sizeof buffer);
  close(fd);
  return std::string(buffer, length > 0 ? static_cast<size_t>(length) : 0);
}

struct Stat {
  char state = '\0';
  int64_t parent = 0;
  int64_t group = 0;
  uint64_t start_ticks = 0;
  std::string name;
};

// Reads the stat file of a process by its name in /proc: fields 2 to 5 and 22. The second field, the command,
// may contain spaces and parentheses.
bool read_stat_of(const std::string& name_in_proc, Stat& stat) {
  const std::string text = read_file("/proc/" + name_in_proc + "/stat");
  const size_t name = text.find('(');
  size_t at = text.rfind(')');
  if (name == std::string::npos || at == std::string::npos || at < name) return false;
  stat.name = printable(std::string_view(text).substr(name + 1, at - name - 1));
  for (int field = 3; field <= 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return false;
    ++at;
    if (field == 3) stat.state = text[at];
    if (field == 4) stat.parent = std::strtoll(text.c_str() + at, nullptr, 10);
    if (field == 5) stat.group = std::strtoll(text.c_str() + at, nullptr, 10);
    if (field == 22) stat.start_ticks = std::strtoull(text.c_str() + at, nullptr, 10);
  }
  return true;
}

bool read_stat(int64_t pid, Stat& stat) {
  if (pid == getpid()) return read_stat_of("self", stat);
  // In another namespace's /proc the number is another process's.
  return proc_is_ours() && read_stat_of(std::to_string(pid), stat);
}

}  // namespace

std::vector<ProcessKey> process_line(int64_t pid) {
  std::vector<ProcessKey> line;
  Stat stat;
  while (pid > 0 && line.size() < kMaxDepth && read_stat(pid, stat)) {
    line.push_back({pid, stat.start_ticks});
    pid = stat.parent;
  }
  return line;
}

std::vector<Descendant> descendants(int64_t pid) {
  std::multimap<int64_t, Descendant> by_parent;
  if (!proc_is_ours()) return {};
  DIR* const all = opendir("/proc");
  if (all == nullptr) return {};
  while (const dirent* entry = readdir(all)) {
    char* end = nullptr;
    const int64_t number = std::strtoll(entry->d_name, &end, 10);
    Stat stat;
    if (*end != '\0' || number <= 0 || !read_stat_of(entry->d_name, stat)) continue;
    by_parent.insert(
        {stat.parent, {{number, stat.start_ticks}, stat.parent, stat.group, std::move(stat.name)}});
  }
  closedir(all);
  std::vector<Descendant> found;
  const auto add_children = [&](int64_t parent) {
    const auto [first, last] = by_parent.equal_range(parent);
    for (auto child = first; child != last; ++child) found.push_back(std::move(child->second));
    by_parent.erase(first, last);  // Numbers read at different moments may form a circle.
  };
  add_children(pid);
  for (size_t at = 0; at < found.size(); ++at) add_children(found[at].process.pid);
  return found;
}

bool signal_process(const ProcessKey& process, int signal) {
  const pid_t number = static_cast<pid_t>(process.pid);
  const int opened = static_cast<int>(syscall(SYS_pidfd_open, number, 0));
  if (opened < 0 && errno != ENOSYS) return false;
  // An opened process descriptor never changes its process, so its start time may be checked afterwards.
  Stat stat;
  const bool same = read_stat(process.pid, stat) && stat.start_ticks == process.start_ticks;
  if (opened < 0) return same && kill(number, signal) == 0;
  const bool sent = same && syscall(SYS_pidfd_send_signal, opened, signal, nullptr, 0) == 0;
  close(opened);
  return sent;
}

char process_state(const ProcessKey& process) {
  Stat stat;
  return read_stat(process.pid, stat) && stat.start_ticks == process.start_ticks ? stat.state : '\0';
}

char process_state(int64_t pid) {
  Stat stat;
  return read_stat(pid, stat) ? stat.state : '\0';
}

std::string thread_states(int64_t pid) {
  std::string states;
  std::error_code error;
  const std::string tasks = std::to_string(pid) + "/task/";
  if (!proc_is_ours()) return states;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + tasks, error)) {
    Stat stat;
    states += read_stat_of(tasks + entry.path().filename().string(), stat) ? stat.state : '?';
  }
  return error ? "" : states;
}

uint64_t own_pid_namespace() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

void sign(Record& record) {
  record.uid = geteuid();
  record.process = {getpid(), 0};
  Stat stat;
  if (read_stat(getpid(), stat)) record.process.start_ticks = stat.start_ticks;
  record.pid_namespace = own_pid_namespace();
  record.boot_id = read_file("/proc/sys/kernel/random/boot_id");
  while (!record.boot_id.empty() && record.boot_id.back() == '\n') record.boot_id.pop_back();
  std::string command = read_file("/proc/self/cmdline");
  while (!command.empty() && command.back() == '\0') command.pop_back();
  for (char& c : command)
    if (c == '\0') c = ' ';
  record.command = printable(command);
}

std::string user_name(uint32_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr) return found->pw_name;
  return "uid " + std::to_string(uid);
}

}  // namespace innkeeper::lease
