#include "cli/doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/gpus/report.h"
#include "lease/directory.h"

namespace innkeeper::cli {
namespace {

using Findings = std::vector<Finding>;
using telemetry::Trouble;

// Starting the driver's library takes milliseconds if the driver is kept loaded, otherwise a second or
// more for each GPU.
constexpr double kSlowStart = 1.0;
constexpr int64_t kIdleNs = int64_t{10} * 60 * 1'000'000'000;
constexpr int kManyDeadFiles = 100;

void add(Findings& findings, Grade grade, const char* name, std::string what, std::string cure = {}) {
  findings.push_back({grade, name, std::move(what), std::move(cure)});
}

const char* cure_of(Trouble trouble) {
  switch (trouble) {
    case Trouble::none: return "";
    case Trouble::no_library:
      return "install the NVIDIA driver; in a container start it with the GPUs (docker run --gpus all); "
             "another place "
             "of libnvidia-ml.so.1 goes into INNKEEPER_NVML";
    case Trouble::bad_library:
      return "reinstall the NVIDIA driver: its library is not whole; unset INNKEEPER_NVML";
    case Trouble::not_loaded: return "as root: modprobe nvidia; if that fails, dkms status and dmesg say why";
    case Trouble::version_mismatch:
      return "the driver was upgraded while it ran: restart the machine, or end all GPU programs and reload "
             "the nvidia "
             "modules";
    case Trouble::no_permission:
      return "ask for the group that owns /dev/nvidia* (ls -l /dev/nvidia0), then log in again";
    case Trouble::wrong_setting: return "correct INNKEEPER_NODES, or unset it";
    case Trouble::other: return "run nvidia-smi, and look at dmesg for lines with NVRM";
  }
  return "";
}

void check_driver(const Patient& patient, Findings& findings) {
  const telemetry::Snapshot& snapshot = patient.survey.snapshot;
  if (snapshot.simulated) {
    add(findings, Grade::good, "driver",
        fmt::format("there is none, and INNKEEPER_NODES names {} simulated GPUs", snapshot.gpus.size()));
    return;
  }
  if (snapshot.trouble != Trouble::none) {
    add(findings, Grade::trouble, "driver", snapshot.driver.text(), cure_of(snapshot.trouble));
    return;
  }
  const std::string version = snapshot.driver ? snapshot.driver->version : "of unknown version";
  add(findings, Grade::good, "driver", "the driver " + version + " answers");
  if (patient.start_seconds > kSlowStart) {
    add(findings, Grade::trouble, "persistence",
        fmt::format("the driver took {:.1f} s to answer: it is not kept loaded", patient.start_seconds),
        "as root: systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1");
  } else {
    add(findings, Grade::good, "persistence",
        fmt::format("it answers after {:.0f} ms", patient.start_seconds * 1e3));
  }
}

void check_gpus(const Patient& patient, Findings& findings) {
  const telemetry::Snapshot& snapshot = patient.survey.snapshot;
  if (snapshot.trouble != Trouble::none) return;
  if (snapshot.gpus.empty() && snapshot.lost.empty())
    add(findings, Grade::trouble, "gpus", "the driver sees no GPU",
        "lspci | grep -i nvidia shows whether there is one");
  else
    add(findings, Grade::good, "gpus",
        fmt::format("{} GPU{} can be used", snapshot.gpus.size(), snapshot.gpus.size() == 1 ? "" : "s"));
  for (const telemetry::LostGpu& lost : snapshot.lost) {
    if (lost.forbidden) continue;
    add(findings, Grade::trouble, "lost-gpu", fmt::format("{} does not work: {}", name_of(lost), lost.why),
        "end its programs; as root: nvidia-smi --gpu-reset, else restart the machine; dmesg | grep Xid says "
        "why");
  }
  for (const telemetry::Gpu& gpu : snapshot.gpus) {
    if (gpu.mig && gpu.instances.empty())
      add(findings, Grade::trouble, "mig", gpu.uuid + ": MIG is on and there is no instance",
          "as root: nvidia-smi mig -cgi 0 -C makes one, nvidia-smi -mig 0 turns MIG off");
    if (!gpu.mig && !gpu.memory)
      add(findings, Grade::trouble, "memory",
          gpu.uuid + ": its memory cannot be read" +
              (gpu.memory.text().empty() ? "" : ": " + gpu.memory.text()),
          "lease it whole (without --mem): bytes of it cannot be counted");
    if (!gpu.mig && gpu.memory && gpu.memory->unified)
      add(findings, Grade::hint, "one-memory", gpu.uuid + ": it shares the host's memory",
          "nothing is gained by moving tensors from it to the host; name a disk to have more room, as in "
          "INNKEEPER_NODES=auto,disk:/tmp:64GiB");
  }
}

void check_foreign(const Patient& patient, Findings& findings) {
  const Survey& survey = patient.survey;
  bool any = false;
  for (const Place& place : survey.places) {
    if (place.standing.leases == 0 || place.standing.foreign <= MiB(512)) continue;
    any = true;
    std::string who;
    for (const User& user : place.users)
      if (user.lease.empty() && who.size() < 200)
        who += fmt::format("{}pid {} {}", who.empty() ? "" : ", ", user.pid, user.name);
    add(findings, Grade::trouble, "foreign",
        fmt::format("GPU {} ({}) is leased, and {} of it are used without a lease{}", place.label, place.uuid,
                    to_string(place.standing.foreign), who.empty() ? "" : ": " + who),
        "start those programs with innkeeper run, or ask their owners to");
  }
  if (!any && !survey.places.empty() && survey.directory.ok())
    add(findings, Grade::good, "foreign", "no leased GPU is used without a lease");
  for (const Held& held : survey.leases) {
    const int64_t age = survey.now_ns - held.entry.record.since_ns;
    if (!held.used || *held.used > Bytes(0) || age < kIdleNs || !held.entry.record.inside.empty()) continue;
    add(findings, Grade::hint, "idle-lease",
        fmt::format("the lease {} of {} has used nothing for {}", held.entry.id, held.owner, age_text(age)),
        "its owner can end it: innkeeper lease release " + held.entry.id);
  }
}

// Returns container options that mount the machine's directory `directory`.
std::string mounting(const std::string& directory) {
  return "docker run -v " + directory + ":" + directory + ", apptainer exec --bind " + directory;
}

void check_directory(const Patient& patient, Findings& findings) {
  const Survey& survey = patient.survey;
  // `innkeeper setup` mounts a file system, which a container may not do.
  const std::string set_up =
      patient.container ? "outside of this container, as root: innkeeper setup" : "as root: innkeeper setup";
  if (!survey.directory.ok()) {
    add(findings, Grade::trouble, "lease-directory", survey.directory.message(),
        set_up + ", or set INNKEEPER_LEASE_DIR to a directory that all users share");
    return;
  }
  add(findings, Grade::good, "lease-directory",
      fmt::format("leases are in {}, {} held, {} waiting", survey.directory_path, survey.leases.size(),
                  survey.line.size()));
  if (!survey.directory_weakness.empty())
    add(findings, Grade::hint, "directory-owner",
        "leases protect among friends only: " + survey.directory_weakness, set_up);
  if (!survey.directory_writable)
    add(findings, Grade::trouble, "directory-rights",
        "this user may make no lease in " + survey.directory_path,
        "ask to join its group (ls -ld " + survey.directory_path + "), then log in again; or " + set_up);
  if (!patient.directory_full.empty())
    add(findings, Grade::trouble, "directory-full",
        "there is no room for a lease in " + survey.directory_path + patient.directory_full,
        "remove other files there: df " + survey.directory_path + "; or " + set_up);
  for (const std::string& line : survey.other_directories)
    add(findings, Grade::trouble, "other-directory", line,
        set_up + " removes it once nobody has leases there");
  if (patient.shared_space > Bytes(0))
    add(findings, Grade::hint, "directory-room",
        fmt::format(
            "the lease directory shares {} with other files: who fills them keeps everybody from leases",
            to_string(patient.shared_space)),
        set_up);
  const std::string lock_path = survey.directory_path + "/alloc.lock";
  if (patient.lock.code() == Code::busy)
    add(findings, Grade::trouble, "lock", patient.lock.message(),
        "end the process that holds the lock: fuser -v " + lock_path);
  else if (!patient.lock.ok())
    add(findings, Grade::trouble, "lock", patient.lock.message(),
        "its owner, or root: chmod 1777 " + survey.directory_path + "; touch " + lock_path + "; chmod 444 " +
            lock_path);
  if (survey.dead_files > kManyDeadFiles)
    add(findings, Grade::hint, "stale-files",
        fmt::format("{} files of ended leases are left", survey.dead_files),
        "the next grant removes your own; root's removes all: sudo innkeeper pick");
  else
    add(findings, Grade::good, "stale-files", fmt::format("{} files of ended leases", survey.dead_files));
  if (patient.protected_regular > 0)
    add(findings, Grade::good, "protected-regular",
        fmt::format("fs.protected_regular is {}: lease files are made in a way that it allows",
                    patient.protected_regular));
  if (patient.container && !patient.directory_mounted)
    add(findings, Grade::trouble, "container",
        "in this container nobody outside sees the leases in " + survey.directory_path,
        patient.directory_named
            ? "start it with that directory of the machine: " + mounting(survey.directory_path)
            : "start it with the directory that innkeeper doctor names outside; after innkeeper setup "
              "there: " +
                  mounting(lease::kSetUpDirectory));
  if (!patient.removed_at_logout.empty())
    add(findings, Grade::trouble, "logout", patient.removed_at_logout, set_up);
  if (!patient.watches_left)
    add(findings, Grade::hint, "inotify",
        "inotify is used up: who waits looks once a second instead of at once",
        "as root: sysctl fs.inotify.max_user_instances=1024");
}

void check_environment(const Patient& patient, Findings& findings) {
  const Survey& survey = patient.survey;
  std::set<std::string> models;
  for (const telemetry::Gpu& gpu : survey.snapshot.gpus) models.insert(gpu.name);
  if (models.size() > 1 && patient.device_order != "PCI_BUS_ID")
    add(findings, Grade::trouble, "device-order",
        fmt::format("there are {} models of GPU: CUDA numbers them otherwise than nvidia-smi does",
                    models.size()),
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID as innkeeper pick does");
  else if (!survey.snapshot.gpus.empty())
    add(findings, Grade::good, "device-order", "CUDA's numbers are those of nvidia-smi");
  if (!survey.visible.note.empty() && !survey.snapshot.gpus.empty())
    add(findings, Grade::trouble, "visible",
        "CUDA_VISIBLE_DEVICES=" + lease::printable(patient.visible_list) + ": " + survey.visible.note,
        "unset it, or use what innkeeper pick prints");
  else if (patient.visible_set && survey.visible.uuids.empty() && !survey.snapshot.gpus.empty())
    add(findings, Grade::trouble, "visible", "CUDA_VISIBLE_DEVICES gives this process no GPU",
        "unset CUDA_VISIBLE_DEVICES, or use what innkeeper pick prints");
  if (patient.mps && patient.visible_set && !patient.visible_list.starts_with("GPU-") &&
      !patient.visible_list.starts_with("MIG-"))
    add(findings, Grade::hint, "mps",
        "an MPS daemon is there: it gives other numbers to the GPUs than CUDA does",
        "name GPUs by UUID, as innkeeper pick does");
  if (patient.processes_hidden)
    add(findings, Grade::hint, "hidden-processes",
        "/proc hides other users' processes: their memory counts as foreign",
        "as root: mount -o remount,hidepid=0 /proc");
  if (!patient.outer_lease.empty()) {
    const bool alive = std::any_of(survey.leases.begin(), survey.leases.end(),
                                   [&](const Held& held) { return held.entry.id == patient.outer_lease; });
    if (!alive)
      add(findings, Grade::trouble, "outer-lease",
          "INNKEEPER_LEASE names the lease " + lease::printable(patient.outer_lease) + ", which is over",
          "unset INNKEEPER_LEASE INNKEEPER_LEASE_FD, or run in a new lease");
  }
}

void check_libraries(const Patient& patient, Findings& findings) {
  // The list matches python/innkeeper/integrations.
  const std::string adapted = "accelerate, cupy, lightning, numba, safetensors, transformers, triton";
  if (patient.libraries == "off")
    add(findings, Grade::hint, "libraries", "INNKEEPER_LIBRARIES=off: " + adapted + " do not know managed",
        "unset INNKEEPER_LIBRARIES");
  else
    add(findings, Grade::good, "libraries", "adapters for " + adapted);
}

}  // namespace

std::vector<Finding> check(const Patient& patient) {
  Findings findings;
  check_driver(patient, findings);
  check_gpus(patient, findings);
  check_directory(patient, findings);
  check_foreign(patient, findings);
  check_environment(patient, findings);
  check_libraries(patient, findings);
  return findings;
}

}  // namespace innkeeper::cli
