// Lease records, and a lease directory full of files that the bytes make: live and dead leases, places in the
// line, records that are torn, forged or noise, links, directories, pipes, drafts.
//
// A decoded record keeps to the limits and can be written and read again; a torn change leaves the old record
// or the new one. In a directory the promised bytes are those of the live leases, a grant never exceeds the
// rest, and dead files and noise change nothing for a request.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/clock.h"
#include "fuzz/input.h"
#include "lease/process.h"
#include "support/temporary_lease_directory.h"

namespace {

using namespace innkeeper;
using namespace innkeeper::lease;
using fuzz::Input;

constexpr int kGpus = 3;
constexpr Bytes kCapacity = Bytes(100);  // Small, so that random records fill it.

// ---- One record

bool same(const Record& a, const Record& b) {
  const bool waits = a.kind == Kind::waiting;  // Only waiting records state the resources that they wait for.
  return a.kind == b.kind && a.revision == b.revision && a.claims == b.claims && a.exclusive == b.exclusive &&
         a.inside == b.inside &&
         (!waits || (a.count == b.count && a.each == b.each && a.allowed == b.allowed)) &&
         a.since_ns == b.since_ns && a.expires_ns == b.expires_ns && a.process == b.process &&
         a.pid_namespace == b.pid_namespace && a.boot_id == b.boot_id && a.command == b.command &&
         a.job == b.job;
}

void check_record(const Record& record) {
  IK_CHECK(record.claims.size() <= kMaxClaims && record.allowed.size() <= kMaxClaims);
  for (size_t i = 0; i < record.claims.size(); ++i) {
    IK_CHECK(valid_uuid(record.claims[i].uuid) && record.claims[i].bytes >= Bytes(0));
    IK_CHECK(i == 0 || record.claims[i - 1].uuid < record.claims[i].uuid, "a GPU stands there twice");
  }
  for (const std::string& uuid : record.allowed) IK_CHECK(valid_uuid(uuid));
  IK_CHECK(record.count >= 0 && record.count <= static_cast<int64_t>(kMaxClaims) && record.each >= Bytes(0));
  IK_CHECK(record.inside.size() <= kMaxWholes);
  for (const std::string& id : record.inside) IK_CHECK(valid_id(id));
  IK_CHECK(record.since_ns >= 0 && record.expires_ns >= 0 && record.process.pid >= 0);
  for (const std::string& text : {record.command, record.job, record.boot_id})
    IK_CHECK(text.size() <= kMaxTextLength && fuzz::is_one_line(text));
}

void check_bytes(std::string_view file) {
  const std::optional<Record> record = decode(file);
  if (!record) return;
  check_record(*record);
  const Result<std::string> slot = encode(*record);
  if (!slot.ok()) return;  // A full record has no space for the added fields.
  IK_CHECK(slot.value().size() <= kSlotBytes);
  const std::optional<Record> again = decode(slot.value());
  IK_CHECK(again && same(*record, *again), "a record is read back as another");
}

// A body after a right header, which any user can write.
std::string forged(uint64_t revision, const std::string& body) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char header[96];
  std::snprintf(header, sizeof header, "innkeeper-lease 1 %llu %zu %llx\n",
                static_cast<unsigned long long>(revision), body.size(),
                static_cast<unsigned long long>(hash ^ revision));
  return header + body;
}

std::string two_slots(std::string first, const std::string& second) {
  first.resize(kSlotBytes, '\0');
  return first + second;
}

Record some_record(Input& input, const std::vector<std::string>& wholes) {
  Record record;
  const uint8_t kind = input.byte();
  record.kind = kind % 8 == 7 ? Kind::waiting : Kind::held;
  record.exclusive = kind / 8 % 4 == 1;
  // The enclosing lease, and perhaps a further one.
  if (kind / 32 % 4 == 1 && !wholes.empty()) record.inside = {input.one_of(wholes)};
  if (kind % 64 == 32 && !wholes.empty()) record.inside.push_back(input.one_of(wholes));
  record.expires_ns = kind >= 224 ? 1 : 0;
  record.revision = 1;
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const uint8_t bytes = input.byte();
    // Small parts mostly; now and then more bytes than exist.
    if (bytes > 127)
      record.claims.push_back({test::gpu_name(gpu), Bytes(bytes == 255 ? INT64_MAX : bytes - 128)});
  }
  if (record.kind == Kind::waiting) {
    record.count = static_cast<int64_t>(record.claims.size());
    record.each = record.claims.empty() ? Bytes(0) : record.claims[0].bytes;
  }
  record.since_ns = 1'000'000'000 + input.byte();
  record.process.pid = input.byte();
  record.command = input.text(8);
  return record;
}

// ---- A directory

struct File {
  std::string name;
  std::string content;
  bool live = false;
};

class Scene {
 public:
  explicit Scene(Input& input) {
    for (int count = 0; count < 24 && !input.empty(); ++count) make(input);
  }
  ~Scene() {
    for (const int fd : held_) close(fd);
    for (const auto& entry : std::filesystem::directory_iterator(directory().path()))
      if (entry.path().filename() != kLockName) std::filesystem::remove_all(entry.path());
  }

  static const test::TemporaryLeaseDirectory& directory() {
    static const test::TemporaryLeaseDirectory directory;
    return directory;
  }

  // Bytes that the live leases on a GPU are promised, and whether one has the GPU alone; computed from the
  // created files.
  struct Promised {
    Bytes bytes;
    bool taken = false;
    int leases = 0;
  };
  Promised promised(int gpu) const {
    Promised sum;
    std::map<std::string, Record> live;
    for (const File& file : files_)
      if (const std::optional<Record> record = decode(file.content);
          file.live && record && file.name[0] == 'l')
        if (record->kind == Kind::held && !record->expired(now_ns_)) live[file.name.substr(1)] = *record;
    for (const auto& [id, record] : live) {
      const auto whole = [&live, &own = id](const std::string& outer) {
        return outer != own && live.contains(outer);
      };
      if (std::any_of(record.inside.begin(), record.inside.end(), whole))
        continue;  // The whole lease has its bytes.
      for (const Claim& claim : record.claims) {
        if (claim.uuid != test::gpu_name(gpu)) continue;
        sum.bytes += std::min(claim.bytes, kCapacity);
        sum.taken = sum.taken || record.exclusive;
        ++sum.leases;
      }
    }
    return sum;
  }

  // A place without a touch for seconds does not count: then two answers may differ.
  bool is_old() const { return machine_clock_ns() - now_ns_ > 2'000'000'000; }

  // Removes all files but those of live leases and places.
  void clear_the_rest() const {
    for (const auto& entry : std::filesystem::directory_iterator(directory().path())) {
      const std::string name = entry.path().filename();
      const auto keeps = [&](const File& file) {
        return file.name == name && name[0] == 'l' && file.live && decode(file.content).has_value();
      };
      if (name != kLockName && std::none_of(files_.begin(), files_.end(), keeps))
        std::filesystem::remove_all(entry.path());
    }
  }

 private:
  static std::string path(const std::string& name) { return directory().path() + "/" + name; }

  void make(Input& input) {
    const uint8_t kind = input.byte();
    switch (kind % 8) {
      case 0:
      case 1: return put(kind, encode(some_record(input, wholes_)).value());
      case 2: return put(kind, input.text(120));
      case 3: return put(kind, forged(input.byte(), input.text(200)));
      case 4: return put_torn(kind, input);
      case 5: return put_other(input);
      case 6: {
        Record shown = some_record(input, wholes_);
        shown.revision = 1 + input.byte();
        return put(kind, two_slots(input.text(40), encode(shown).value()));
      }
      default: return put_odd_name(input);
    }
  }

  // A file of a lease or a draft, alive or dead.
  void put(uint8_t kind, const std::string& content) {
    check_bytes(content);
    if (const auto record = decode(content); linked_ && record && !record->inside.empty()) return;
    char id[24];
    std::snprintf(id, sizeof id, "%016zx", files_.size() * 7919 % 1009);
    const bool draft = kind / 8 % 8 == 7;
    File file{(draft ? "t" : "l") + std::string(id), content, kind < 128};
    const int fd = open(path(file.name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    IK_CHECK(fd >= 0 && write(fd, content.data(), content.size()) == ssize_t(content.size()));
    if (file.live) {
      struct flock life {};
      life.l_type = F_WRLCK;
      IK_CHECK(fcntl(fd, F_OFD_SETLK, &life) == 0);
      held_.push_back(fd);
    } else {
      close(fd);
    }
    if (!draft && !linked_) wholes_.emplace_back(id);
    files_.push_back(std::move(file));
  }

  // An unfinished change, or one with a wrong byte.
  void put_torn(uint8_t kind, Input& input) {
    const Record old_record = some_record(input, wholes_);
    Record new_record = some_record(input, wholes_);
    new_record.revision = 2;
    std::string second = encode(new_record).value();
    if (const uint8_t flip = input.byte(); flip == 0)
      second.resize(input.upto(second.size()));
    else
      second[input.upto(second.size() - 1)] ^= static_cast<char>(flip);
    const std::string file = two_slots(encode(old_record).value(), second);
    const std::optional<Record> record = decode(file);
    Record plain_old = decode(encode(old_record).value()).value();
    Record plain_new = decode(encode(new_record).value()).value();
    IK_CHECK(record && (same(*record, plain_old) || same(*record, plain_new)),
             "a torn change is another one");
    put(kind, file);
  }

  void put_other(Input& input) {
    const std::string name =
        path("lffffffffffffff" + std::string(1, "0123456789abcdef"[input.byte() % 16]) + "f");
    switch (input.byte() % 5) {
      case 0: IK_CHECK(mkdir(name.c_str(), 0700) == 0 || errno == EEXIST); break;
      case 1: IK_CHECK(mkfifo(name.c_str(), 0600) == 0 || errno == EEXIST); break;
      case 2: IK_CHECK(symlink("alloc.lock", name.c_str()) == 0 || errno == EEXIST); break;
      case 3: IK_CHECK(symlink(name.c_str(), name.c_str()) == 0 || errno == EEXIST); break;
      default: put_link(input, name);
    }
  }

  // The same file under two names. Which of them is read first is the directory's choice, so a lease that has
  // parts has but one: else the parts would count in addition to it.
  void put_link(Input& input, const std::string& name) {
    const auto has_parts = [](const File& file) {
      const std::optional<Record> record = decode(file.content);
      return file.name[0] == 't' || (record && !record->inside.empty());
    };
    if (files_.empty() || std::any_of(files_.begin(), files_.end(), has_parts)) return;
    if (link(path(input.one_of(files_).name).c_str(), name.c_str()) == 0) wholes_.clear();
    linked_ = true;
  }

  void put_odd_name(Input& input) {
    std::string name = input.text(40);
    for (char& c : name)
      if (c == '/' || c == '\0') c = 'l';
    const bool ours = name.empty() || name == "." || name == ".." || name == kLockName ||
                      ((name[0] == 'l' || name[0] == 't') && valid_id(name.substr(1)));
    if (ours) return;
    const int fd = open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) close(fd);
  }

  const int64_t now_ns_ = machine_clock_ns();
  std::vector<File> files_;
  std::vector<std::string> wholes_;  // Ids of leases that may have parts.
  bool linked_ = false;
  std::vector<int> held_;
};

// Outcome of a request: its claims as text, or the kind of refusal.
std::string outcome(Arbiter& arbiter, const Request& request, const Machine& machine, const Scene& scene) {
  const Result<Lease> lease = arbiter.acquire(request, machine);
  if (!lease.ok()) {
    IK_CHECK(lease.status().code() == Code::busy || lease.status().code() == Code::invalid_argument,
             lease.status().message());
    IK_CHECK(fuzz::is_one_line(lease.status().message()));
    return "refused " + std::to_string(static_cast<int>(lease.status().code()));
  }
  std::string text;
  IK_CHECK(lease.value().claims().size() == static_cast<size_t>(request.count));
  for (const Claim& claim : lease.value().claims()) {
    const auto gpu = static_cast<int>(*index_of(machine, claim.uuid));
    const Scene::Promised others = scene.promised(gpu);
    IK_CHECK(!others.taken, "granted what somebody has alone");
    IK_CHECK(others.bytes + claim.bytes <= kCapacity, "granted more than the live leases leave");
    IK_CHECK(!request.whole() || others.leases == 0, "granted whole what is shared");
    IK_CHECK(claim.bytes >= request.memory.value_or(kCapacity), "granted less than was asked");
    text += claim.uuid + " " + std::to_string(claim.bytes.count()) + "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Machine machine = test::idle_machine(kGpus, kCapacity);
  Input input(data, size);
  Request request;
  request.count = static_cast<int>(1 + input.upto(kGpus - 1));
  if (const uint8_t memory = input.byte(); memory > 0) request.memory = Bytes(memory % 128);
  if (request.memory == Bytes(0)) request.memory = Bytes(1);
  if (input.byte() > 240) request.exclusive = true;
  check_bytes(input.rest());
  const Scene scene(input);
  Arbiter arbiter = Scene::directory().arbiter();
  const Ledger ledger = arbiter.ledger(machine).value();
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const Scene::Promised promised = scene.promised(gpu);
    const Standing& standing = ledger[static_cast<size_t>(gpu)];
    IK_CHECK(standing.promised == promised.bytes,
             to_string(standing.promised) + " of " + to_string(promised.bytes));
    IK_CHECK(standing.taken == promised.taken && standing.leases == promised.leases);
  }
  const std::string with_everything = outcome(arbiter, request, machine, scene);
  scene.clear_the_rest();
  const std::string with_leases_alone = outcome(arbiter, request, machine, scene);
  IK_CHECK(scene.is_old() || with_everything == with_leases_alone,
           with_everything + "but alone " + with_leases_alone);
  return 0;
}
