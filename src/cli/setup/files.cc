// The files of `innkeeper setup` below /etc.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "cli/setup/mount.h"
#include "cli/setup/steps.h"
#include "lease/directory.h"

extern char** environ;

namespace innkeeper::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "# Made by `innkeeper setup`, removed by `innkeeper setup --remove`.\n";
constexpr const char* kUnit = "/etc/systemd/system/run-innkeeper.mount";
constexpr const char* kWanted = "/etc/systemd/system/local-fs.target.wants/run-innkeeper.mount";
constexpr const char* kTmpfiles = "/etc/tmpfiles.d/innkeeper.conf";

std::string tmpfiles_text(const SetUp& set_up) {
  const bool all = set_up.group.empty();
  return fmt::format("{0}d {1} {2} root {3} -\nf {1}/{4} {5} root {3} -\n", kMark, lease::kSetUpDirectory,
                     all ? "1777" : "1775", all ? "root" : set_up.group, lease::kLockName,
                     all ? "0444" : "0440");
}

// tmpfiles.d opens the directory to users once it contains the lock.
std::string unit_text(const SetUp& set_up) {
  return fmt::format(R"({}[Unit]
Description=Leases of GPUs (innkeeper)

[Mount]
What=tmpfs
Where={}
Type=tmpfs
Options=mode=0755,nosuid,nodev,noexec,{}

[Install]
WantedBy=local-fs.target
)",
                     kMark, lease::kSetUpDirectory, mount_options(set_up));
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool exists(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0;
}

void check_ours(const std::string& path) {
  if (exists(path) && !content(path).starts_with(kMark))
    fail(kDirectory, path + " is there, and was not made by `innkeeper setup`: move it away");
}

// Replaces a file atomically: the text is first written under another name.
void replace(const std::string& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) cannot("make", fs::path(path).parent_path(), error.value());
  std::string draft = path + ".XXXXXX";
  const int fd = mkostemp(draft.data(), O_CLOEXEC);
  if (fd < 0) cannot("write", path, errno);
  const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    fchmod(fd, 0644) == 0 && fsync(fd) == 0 && rename(draft.c_str(), path.c_str()) == 0;
  const int problem = errno;
  close(fd);
  if (good) return;
  unlink(draft.c_str());
  cannot("write", path, problem);
}

bool write_file(SetUp& set_up, const char* name, const std::string& text) {
  const std::string path = set_up.root + name;
  if (content(path) == text) return false;
  if (!set_up.dry) replace(path, text);
  say(set_up, "write " + path + ":\n" + text, "wrote " + path);
  return true;
}

bool remove_file(SetUp& set_up, const char* name) {
  const std::string path = set_up.root + name;
  if (!exists(path)) return false;
  if (!set_up.dry && unlink(path.c_str()) != 0) cannot("remove", path, errno);
  say(set_up, "remove " + path, "removed " + path);
  return true;
}

}  // namespace

void cannot(const std::string& what, const std::string& path, int error) {
  fail(kDirectory, "cannot " + what + " " + path + ": " + std::strerror(error));
}

bool write_boot_files(SetUp& set_up) {
  for (const char* name : {kTmpfiles, kUnit}) check_ours(set_up.root + name);
  bool changed = write_file(set_up, kTmpfiles, tmpfiles_text(set_up));
  changed = write_file(set_up, kUnit, unit_text(set_up)) || changed;
  const std::string link = set_up.root + kWanted;
  std::error_code error;
  if (fs::read_symlink(link, error) == fs::path(kUnit)) return changed;
  if (!set_up.dry) {
    fs::create_directories(fs::path(link).parent_path(), error);
    if (unlink(link.c_str()) != 0 && errno != ENOENT) cannot("replace", link, errno);
    if (symlink(kUnit, link.c_str()) != 0) cannot("make", link, errno);
  }
  say(set_up, "make " + link, "made " + link);
  return true;
}

bool remove_boot_files(SetUp& set_up) {
  for (const char* name : {kTmpfiles, kUnit}) check_ours(set_up.root + name);
  bool changed = remove_file(set_up, kWanted);
  for (const char* name : {kUnit, kTmpfiles}) changed = remove_file(set_up, name) || changed;
  return changed;
}

void reload_systemd(SetUp& set_up) {
  if (!set_up.root.empty()) return;
  if (!exists("/run/systemd/system")) {
    note(
        "this machine is not run by systemd: have `innkeeper setup` run at each of its starts, as by a line "
        "@reboot "
        "in root's crontab");
    return;
  }
  if (set_up.dry) return;
  const char* words[] = {"systemctl", "daemon-reload", nullptr};
  pid_t child = -1;
  int status = -1;
  if (posix_spawnp(&child, words[0], nullptr, nullptr, const_cast<char**>(words), environ) != 0 ||
      waitpid(child, &status, 0) != child || status != 0)
    note("systemctl daemon-reload failed: systemd looks at its new units when the machine starts");
}

}  // namespace innkeeper::cli
