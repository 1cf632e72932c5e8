// The steps of `innkeeper setup`: each examines the machine first, changes only the differences, and reports
// its changes. With `dry` it reports the same and changes no file. Failures are thrown (command.h).
//
// The directory is /run/innkeeper: only root can create files in /run, so no other user can have been there
// first. It is a tmpfs of its own for two reasons. /run/lock has 5 MB on Debian for all programs that use
// locks, so a user that fills it would block leases. A user that filled /run would harm the whole machine. If
// the kernel has quotas for tmpfs (6.6, CONFIG_TMPFS_QUOTA), no user may fill more than a quarter of it. Two
// files recreate it at the next boot: a mount unit of systemd, and tmpfiles.d, which creates alloc.lock and
// sets the rights.
#pragma once

#include <string>

#include "base/types.h"

namespace innkeeper::cli {

struct SetUp {
  // Another root directory, of a machine's image, where only files are written; empty: this machine.
  std::string root;
  std::string group;  // Group whose members may take leases; empty: all users may.
  Bytes size = MiB(64);
  bool dry = false;
  bool changed = false;  // True: a step has changed a file or setting.
};

// Records a change and prints it: "would `would`" in a dry run, else `done`.
void say(SetUp& set_up, const std::string& would, const std::string& done);

// Fails with kNotYours if this process may not set up the machine.
void check_rights();
// Fails with kUsage if there is no such group.
void check_group(const SetUp& set_up);

// Fails with kDirectory and the message "cannot WHAT PATH: " plus the text of the error number.
[[noreturn]] void cannot(const std::string& what, const std::string& path, int error);

// Writes the files for the next boot. Returns true if a file was changed.
bool write_boot_files(SetUp& set_up);
bool remove_boot_files(SetUp& set_up);
// Makes systemd read its changed units.
void reload_systemd(SetUp& set_up);

// Creates /run/innkeeper now, and removes other default directories. Fails with kBusy while leases are held
// in one of them: no process would see those leases, and their bytes would be granted again.
void make_directory(SetUp& set_up);
// Fails with kBusy while leases are held there.
void remove_directory(SetUp& set_up);

}  // namespace innkeeper::cli
