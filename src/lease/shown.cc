#include "lease/shown.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/thread_annotations.h"
#include "telemetry/cuda_view.h"

namespace innkeeper::lease {

using telemetry::Chosen;
using telemetry::Variables;

struct Shown::Entry {
  Chosen chosen;
  Counts counts;
};

namespace {

void add(std::vector<std::string>& list, const std::vector<std::string>& more) {
  for (const std::string& uuid : more)
    if (std::find(list.begin(), list.end(), uuid) == list.end()) list.push_back(uuid);
}

}  // namespace

// State of the whole process. Never destroyed: a choice may be a static object of the program.
struct Showing {
  static Showing& self() {
    static Showing& showing = *new Showing;
    return showing;
  }

  // Returns whether the variables are as this class wrote them last. The program may set the order of
  // indices at any time.
  bool is_ours() const IK_REQUIRES(mutex) {
    if (entries.empty()) return false;
    Variables now = telemetry::own_variables();
    now.order = written.order;
    return now == written;
  }

  void write() IK_REQUIRES(mutex) {
    std::erase_if(entries, [](const auto& entry) { return !entry->counts(); });
    Chosen all;
    for (const auto& entry : entries) {
      add(all.nvidia, entry->chosen.nvidia);
      add(all.amd, entry->chosen.amd);
      all.both_here = all.both_here || entry->chosen.both_here;
    }
    Variables next = before;
    next.order = telemetry::own_variables().order;
    if (!entries.empty()) written = next = showing(all, std::move(next));
    set_own_variables(next);
  }

  Mutex mutex;
  std::vector<std::shared_ptr<const Shown::Entry>> entries IK_GUARDED_BY(mutex);
  Variables before IK_GUARDED_BY(mutex);   // Variables before the first entry was shown.
  Variables written IK_GUARDED_BY(mutex);  // Variables as last written by this class.

 private:
  // The child of fork() must not find the mutex locked by a thread that only its parent has.
  Showing() {
    const int registered = pthread_atfork(&lock, &unlock, &unlock);
    IK_CHECK(registered == 0, "pthread_atfork has no memory");
  }
  static void lock() IK_NO_THREAD_SAFETY_ANALYSIS { self().mutex.lock(); }
  static void unlock() IK_NO_THREAD_SAFETY_ANALYSIS { self().mutex.unlock(); }
};

Shown::Shown(const std::vector<std::string>& uuids, const telemetry::Snapshot& gpus, Counts counts)
    : entry_(std::make_shared<const Entry>(Entry{telemetry::by_vendor(uuids, gpus), std::move(counts)})) {
  Showing& showing = Showing::self();
  const MutexLock lock(showing.mutex);
  if (!showing.is_ours()) {  // This entry is the first, or the program has set a variable itself.
    showing.entries.clear();
    showing.before = telemetry::own_variables();
  }
  showing.entries.push_back(entry_);
  showing.write();
}

Shown& Shown::operator=(Shown&& other) noexcept {
  if (this != &other) {
    end();
    entry_ = std::move(other.entry_);
  }
  return *this;
}

void Shown::end() {
  if (!entry_) return;
  // Released after the lock, because its destructor may run the caller's code.
  const std::shared_ptr<const Entry> entry = std::move(entry_);
  Showing& showing = Showing::self();
  const MutexLock lock(showing.mutex);
  const bool ours = showing.is_ours();
  if (std::erase(showing.entries, entry) > 0 && ours) showing.write();
}

Variables variables_before() {
  Showing& showing = Showing::self();
  const MutexLock lock(showing.mutex);
  Variables variables = telemetry::own_variables();
  if (!showing.is_ours()) return variables;
  Variables before = showing.before;
  before.order = variables.order;
  return before;
}

Result<std::vector<int>> ordinals_here(const std::vector<std::string>& uuids) {
  const telemetry::Snapshot gpus = telemetry::snapshot(telemetry::Wanted::nothing);
  std::vector<std::string> listing;
  if (std::optional<std::vector<std::string>> view = telemetry::cuda_view(gpus)) {
    listing = *std::move(view);
  } else {
    // Each vendor numbers its GPUs separately, and the requested GPUs are of one vendor.
    const Chosen seen = by_vendor(telemetry::visible_from_environment(gpus).uuids, gpus);
    listing = by_vendor(uuids, gpus).amd.empty() ? seen.nvidia : seen.amd;
  }
  std::vector<int> ordinals;
  std::string missing, seen;
  for (const std::string& uuid : uuids) {
    const auto at = std::find(listing.begin(), listing.end(), uuid);
    if (at == listing.end()) missing += (missing.empty() ? "" : ", ") + uuid;
    ordinals.push_back(static_cast<int>(at - listing.begin()));
  }
  if (missing.empty()) return ordinals;
  for (const std::string& uuid : listing)
    seen += (seen.empty() ? "" : ", ") + (uuid.empty() ? "one that is not known" : uuid);
  return Status(Code::unavailable, "CUDA cannot use " + missing + " in this process: it sees " +
                                       (seen.empty() ? "no GPU" : seen) +
                                       ". Choose before anything starts CUDA, or with more GPUs visible");
}

}  // namespace innkeeper::lease
