#include "cli/gpus/survey.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/clock.h"
#include "board/reader.h"
#include "lease/container.h"
#include "lease/directory.h"
#include "lease/from_snapshot.h"
#include "lease/process.h"

namespace innkeeper::cli {
namespace {

using lease::Entry;
using telemetry::Snapshot;
using telemetry::Wanted;

// Fills in the owner and command of a process, as far as this process may see them.
void describe_process(User& user, std::map<uint32_t, std::string>& names) {
  const std::string directory = "/proc/" + std::to_string(user.pid);
  struct stat about {};
  if (user.pid <= 0 || stat(directory.c_str(), &about) != 0) return;
  std::string& name = names[about.st_uid];
  if (name.empty()) name = lease::user_name(about.st_uid);
  user.name = name;
  const int fd = open((directory + "/cmdline").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[512];
  const ssize_t length = read(fd, buffer, sizeof buffer);
  close(fd);
  std::string text(buffer, length > 0 ? static_cast<size_t>(length) : 0);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  user.command = lease::printable(text);
}

bool claims(const Entry& entry, const std::string& uuid) {
  return std::any_of(entry.record.claims.begin(), entry.record.claims.end(),
                     [&](const lease::Claim& claim) { return claim.uuid == uuid; });
}

bool runs_under(const lease::Process& process, const Entry& entry) {
  return std::find(process.line.begin(), process.line.end(), entry.record.process) != process.line.end();
}

// Returns the lease of the nearest ancestor that holds one on this GPU; of several, the innermost part.
std::string lease_of(const lease::Process& process, const std::string& uuid, const std::vector<Entry>& live,
                     uint64_t pid_namespace) {
  for (const lease::ProcessKey& ancestor : process.line) {
    const Entry* best = nullptr;
    for (const Entry& entry : live) {
      const lease::Record& record = entry.record;
      if (record.kind != lease::Kind::held || record.process != ancestor ||
          record.pid_namespace != pid_namespace || !claims(entry, uuid))
        continue;
      const bool deeper = best != nullptr && std::find(record.inside.begin(), record.inside.end(),
                                                       best->id) != record.inside.end();
      if (best == nullptr || deeper) best = &entry;
    }
    if (best != nullptr) return best->id;
  }
  return {};
}

void add_users(Place& place, const telemetry::Gpu& gpu, const std::vector<Entry>& live,
               uint64_t pid_namespace, std::map<uint32_t, std::string>& names) {
  if (!gpu.processes) return;
  place.users_known = true;
  for (const telemetry::Process& process : *gpu.processes) {
    if (process.instance_uuid != (place.instance ? place.uuid : "")) continue;
    User user;
    user.pid = process.pid;
    user.used = process.used;
    describe_process(user, names);
    user.lease = lease_of({Bytes(0), lease::process_line(process.pid)}, place.uuid, live, pid_namespace);
    place.users.push_back(std::move(user));
  }
}

// Places are in the order of machine.gpus, which from_snapshot() fixes.
std::vector<Place> places_of(const Snapshot& snapshot) {
  std::vector<Place> places;
  for (size_t i = 0; i < snapshot.gpus.size(); ++i) {
    const telemetry::Gpu& gpu = snapshot.gpus[i];
    Place place;
    place.gpu = i;
    if (!gpu.mig) {
      place.label = std::to_string(i);
      place.uuid = gpu.uuid;
      place.name = gpu.name;
      if (gpu.memory) place.memory = *gpu.memory;
      places.push_back(std::move(place));
      continue;
    }
    for (size_t j = 0; j < gpu.instances.size(); ++j) {
      Place part;
      part.gpu = i;
      part.label = std::to_string(i) + "/" + std::to_string(j);
      part.uuid = gpu.instances[j].uuid;
      part.name = gpu.instances[j].name.empty() ? gpu.name : gpu.instances[j].name;
      part.instance = true;
      if (gpu.instances[j].memory) part.memory = *gpu.instances[j].memory;
      places.push_back(std::move(part));
    }
  }
  return places;
}

Held held(const Entry& entry, const Survey& survey, uint64_t pid_namespace,
          std::map<uint32_t, std::string>& names) {
  Held result;
  result.entry = entry;
  std::string& name = names[entry.record.uid];
  if (name.empty()) name = lease::user_name(entry.record.uid);
  result.owner = name;
  bool known = entry.record.pid_namespace == pid_namespace;
  Bytes used;
  for (const lease::Claim& claim : entry.record.claims) {
    const std::optional<size_t> at = lease::index_of(survey.machine, claim.uuid);
    result.labels.push_back(at ? survey.places[*at].label : claim.uuid);
    known = known && at && survey.machine.gpus[*at].processes_known;
    if (!at) continue;
    for (const lease::Process& process : survey.machine.gpus[*at].processes)
      if (runs_under(process, entry)) used += process.used;
  }
  if (known) result.used = used;
  return result;
}

std::vector<Resident> residents_of(const lease::Directory& directory) {
  std::vector<Resident> residents;
  const uint64_t pid_namespace = lease::own_pid_namespace();
  for (board::Shown& shown : board::read(directory))
    residents.push_back({shown.record.pid, shown.record.pid_namespace == pid_namespace,
                         lease::user_name(shown.uid), std::move(shown.record.command),
                         std::move(shown.record.nodes)});
  return residents;
}

std::string weakness_of(const lease::Directory& directory) {
  if (directory.protects()) return {};
  if (!directory.is_roots())
    return directory.path() + " is " + lease::user_name(directory.owner()) + "'s, not root's";
  const std::string lock = directory.path() + "/" + lease::kLockName;
  if (access(lock.c_str(), F_OK) != 0) return {};  // The first grant creates it.
  return lock + " is not root's";
}

std::vector<Entry> read_files(Survey& survey) {
  const auto directory = lease::Directory::open_default();
  if (!directory.ok()) {
    survey.directory = directory.status();
    return {};
  }
  survey.directory_path = directory.value()->path();
  survey.directory_weakness = weakness_of(*directory.value());
  survey.directory_unseen = lease::unseen_outside(*directory.value());
  survey.directory_writable = directory.value()->writable();
  survey.other_directories = other_directories(*directory.value());
  Result<lease::Scan> found = lease::scan(*directory.value(), nullptr);
  if (!found.ok()) {
    survey.directory = found.status();
    return {};
  }
  survey.dead_files = found.value().dead;
  survey.residents = residents_of(*directory.value());
  return std::move(found.value().live);
}

}  // namespace

std::vector<std::string> other_directories(const lease::Directory& directory) {
  std::vector<std::string> lines;
  for (const lease::OtherDirectory& other : directory.others())
    lines.push_back(other.path + " of " + lease::user_name(other.owner) +
                    " is there too, and is not used: " + other.why);
  return lines;
}

Survey look_around(Wanted wanted, const Survey* before) {
  Survey survey;
  survey.snapshot = telemetry::snapshot(wanted);
  if (!telemetry::has(wanted, Wanted::processes) && before != nullptr)
    for (telemetry::Gpu& gpu : survey.snapshot.gpus)
      if (const telemetry::Gpu* old = before->snapshot.find(gpu.uuid)) gpu.processes = old->processes;
  survey.visible = telemetry::visible_from_environment(survey.snapshot);
  survey.machine = lease::from_snapshot(survey.snapshot);
  survey.places = places_of(survey.snapshot);
  const std::vector<Entry> live = read_files(survey);
  survey.now_ns = machine_clock_ns();
  const uint64_t pid_namespace = lease::own_pid_namespace();
  const lease::Ledger ledger = lease::make_ledger(survey.machine, live, {survey.now_ns, pid_namespace});
  std::map<uint32_t, std::string> names;
  for (size_t i = 0; i < survey.places.size(); ++i) {
    Place& place = survey.places[i];
    place.standing = ledger[i];
    add_users(place, survey.snapshot.gpus[place.gpu], live, pid_namespace, names);
  }
  for (const Entry& entry : live) {
    const bool waits = entry.record.kind == lease::Kind::waiting;
    (waits ? survey.line : survey.leases).push_back(held(entry, survey, pid_namespace, names));
    if (!waits) continue;
    for (const lease::Claim& claim : entry.record.claims)
      if (const auto at = lease::index_of(survey.machine, claim.uuid)) ++survey.places[*at].standing.waiting;
  }
  const auto earlier = [](const Held& a, const Held& b) {
    return a.entry.record.since_ns < b.entry.record.since_ns;
  };
  std::stable_sort(survey.leases.begin(), survey.leases.end(), earlier);
  std::stable_sort(survey.line.begin(), survey.line.end(), earlier);
  return survey;
}

std::string age_text(int64_t nanoseconds) {
  const int64_t seconds = std::max<int64_t>(0, nanoseconds / 1'000'000'000);
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 120 * 60) return std::to_string(seconds / 60) + " min";
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86400) + " d";
}

}  // namespace innkeeper::cli
