// innkeeper setup: creates, now and at each boot, a lease directory that root owns and no other user can
// fill, shadow or remove. Without it leases do not protect against hostile users.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdlib>
#include <memory>

#include "base/size.h"
#include "cli/command.h"
#include "cli/setup/steps.h"
#include "lease/directory.h"

namespace innkeeper::cli {
namespace {

struct Options {
  std::string group, size = "64M", root;
  bool dry = false, remove = false;
};

SetUp checked(const Options& options) {
  SetUp set_up;
  set_up.dry = options.dry;
  set_up.group = options.group;
  if (options.group.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") !=
      std::string::npos)
    fail(kUsage, "--group " + options.group + ": no group has such a name");
  const Result<Bytes> size = parse_size(options.size, SizeUnits::short_too);
  if (!size.ok()) fail(kUsage, "--size " + options.size + ": " + size.status().message());
  if (size.value() < MiB(1) || size.value() > GiB(64))
    fail(kUsage, "--size " + options.size + ": from 1M to 64G");
  set_up.size = Bytes(size.value().count() / 4096 * 4096);
  set_up.root = options.root;
  while (!set_up.root.empty() && set_up.root.back() == '/') set_up.root.pop_back();  // "/" is this machine.
  if (set_up.root.empty() && !options.remove) check_group(set_up);
  return set_up;
}

int run(const Options& options) {
  SetUp set_up = checked(options);
  const bool here = set_up.root.empty();
  if (here && !set_up.dry) check_rights();
  if (options.remove) {
    if (here) remove_directory(set_up);
    if (remove_boot_files(set_up)) reload_systemd(set_up);
  } else {
    // The files for the next boot are written first: if a problem prevents the setup now, the next
    // boot completes it.
    if (write_boot_files(set_up)) reload_systemd(set_up);
    if (here) make_directory(set_up);
  }
  if (!set_up.changed)
    print(options.remove ? "nothing to remove\n"
                         : fmt::format("nothing to do: leases are in {}, with {} of its own\n",
                                       lease::kSetUpDirectory, to_string(set_up.size)));
  if (const char* named = std::getenv("INNKEEPER_LEASE_DIR"); here && named != nullptr && *named != '\0')
    note("INNKEEPER_LEASE_DIR is set here: who has it set leases in " + std::string(named));
  return kDone;
}

}  // namespace

void say(SetUp& set_up, const std::string& would, const std::string& done) {
  set_up.changed = true;
  const std::string line = set_up.dry ? "would " + would : done;
  print(line + (line.ends_with('\n') ? "" : "\n"));
}

void register_setup(CLI::App& program) {
  CLI::App& command = *program.add_subcommand(
      "setup", "As root, once: a lease directory that no user can take away, replace or fill");
  const auto options = std::make_shared<Options>();
  command.add_option("--group", options->group, "Only members of this group may take leases; all may look")
      ->type_name("NAME");
  command.add_option("--size", options->size, "Room for lease files (64M)")->type_name("SIZE");
  command.add_flag("--dry-run", options->dry, "Only show what would be done");
  command.add_flag("--remove", options->remove, "Undo it");
  command
      .add_option("--root", options->root,
                  "Another root directory, as of a machine's image: only its files below etc")
      ->type_name("DIRECTORY");
  command.footer(
      "Makes /run/innkeeper, a tmpfs of its own, and the files in /etc that make it again when the machine "
      "starts\n"
      "(tmpfiles.d, a mount unit of systemd). Removes lease directories that users had made. Refuses while "
      "leases are\n"
      "held in one of these; it is set up from the next start of the machine on all the same.");
  on_run(command, [options] { return run(*options); });
}

}  // namespace innkeeper::cli
