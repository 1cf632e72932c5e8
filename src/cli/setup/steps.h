// The steps of `innkeeper setup`: each looks first, changes only what is not as it is to be, and says what it
// did. With `dry` it says the same and changes nothing. Failures are thrown (command.h).
//
// The folder is /run/innkeeper: in /run root alone can make anything, so no other user can have been there
// first. It is a tmpfs of its own: /run/lock has 5 MB on Debian for all who lock anything, and who fills that
// keeps everybody from leases; in /run itself he would harm the whole machine. Where the kernel has quotas
// for tmpfs (6.6, CONFIG_TMPFS_QUOTA) no user may fill more than a quarter of it. It is there again at the
// next start by a mount unit of systemd, and by tmpfiles.d, which makes alloc.lock and sets the rights.
#pragma once

#include <string>

#include "base/types.h"

namespace innkeeper::cli {

struct SetUp {
  std::string root;   // another root folder, of an image of a machine: its files only. Empty: this machine
  std::string group;  // whose members may take leases; empty: all users
  Bytes size = MiB(64);
  bool dry = false;
  bool changed = false;  // something was not as it is to be
};

// Notes a change, and prints it: "would `would`" in a dry run, else `done`.
void say(SetUp& set_up, const std::string& would, const std::string& done);

// Fails with kNotYours where this process may not set up the machine.
void check_rights();
// Fails with kUsage where there is no such group.
void check_group(const SetUp& set_up);

// Fails with kFolder: "cannot WHAT PATH: " and what the error number means.
[[noreturn]] void cannot(const std::string& what, const std::string& path, int error);

// What the next start of the machine needs. True: something was changed.
bool write_boot_files(SetUp& set_up);
bool remove_boot_files(SetUp& set_up);
// systemd has read its units already: it is told to look again.
void reload_systemd(SetUp& set_up);

// /run/innkeeper, now. Fails with kBusy while leases are held in another folder: they would be seen by
// nobody, and their bytes given again. Removes those folders.
void make_folder(SetUp& set_up);
// Fails with kBusy while leases are held there.
void remove_folder(SetUp& set_up);

}  // namespace innkeeper::cli
