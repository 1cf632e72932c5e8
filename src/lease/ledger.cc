#include "lease/ledger.h"

#include <algorithm>

namespace innkeeper::lease {
namespace {

// The claim of one lease on one GPU.
struct Share {
  const Record* record;
  Bytes bytes;
  Bytes found;  // Bytes that the lease's processes have allocated, at most `bytes`.
  bool matched = false;
};

// Limits a claim to the GPU's capacity, whatever the lease file says.
Bytes clamp(Bytes bytes, const Gpu& gpu) {
  return std::clamp(bytes, Bytes(0), std::max(Bytes(0), gpu.capacity()));
}

std::vector<Share> shares_of(const Gpu& gpu, const std::vector<Entry>& live, const View& view) {
  std::vector<Share> shares;
  for (const Entry& entry : live) {
    const Record& record = entry.record;
    if (record.kind != Kind::held || record.expired(view.now_ns) ||
        whole_of(entry, live, view.now_ns) != nullptr)
      continue;
    for (const Claim& claim : record.claims)
      if (claim.uuid == gpu.uuid) shares.push_back({&record, clamp(claim.bytes, gpu), Bytes(0)});
  }
  return shares;
}

// Attributes each process's bytes to the leases of the process itself, then of its parent, and so on.
void match_processes(const Gpu& gpu, Bytes used, std::vector<Share>& shares, const View& view) {
  // An empty process list is incomplete if memory of the GPU's own is in use.
  bool all_known = gpu.processes_known && (gpu.unified || !gpu.processes.empty() || used <= kUsedByNobody);
  for (const Process& process : gpu.processes) all_known = all_known && !process.line.empty();
  for (Share& share : shares) share.matched = all_known && share.record->pid_namespace == view.pid_namespace;
  for (const Process& process : gpu.processes) {
    Bytes rest = process.used;
    for (const ProcessKey& ancestor : process.line) {
      for (Share& share : shares) {
        if (share.record->process != ancestor || share.record->pid_namespace != view.pid_namespace) continue;
        const Bytes part = std::min(rest, share.bytes - share.found);
        share.found += part;
        rest -= part;
        share.matched = true;
      }
    }
  }
}

// Returns the bytes that the GPU's processes use without a lease, as far as the driver tells.
Bytes without_lease(const Gpu& gpu, const std::vector<Share>& shares) {
  Bytes bytes;
  for (const Process& process : gpu.processes) bytes += process.used;
  for (const Share& share : shares) bytes -= share.found;
  return std::max(Bytes(0), bytes);
}

// Attributes used but unaccounted bytes to leases that cannot be matched and have had time to allocate.
void match_the_rest(const Gpu& gpu, Bytes used, std::vector<Share>& shares, const View& view) {
  Bytes rest = used;
  for (const Process& process : gpu.processes)
    if (!process.line.empty()) rest -= process.used;
  for (Share& share : shares) {
    if (share.matched || view.now_ns - share.record->since_ns < kWarmUpNs || rest <= Bytes(0)) continue;
    const Bytes part = std::min(rest, share.bytes - share.found);
    share.found += part;
    rest -= part;
  }
}

}  // namespace

std::optional<size_t> index_of(const Machine& machine, std::string_view uuid) {
  for (size_t i = 0; i < machine.gpus.size(); ++i)
    if (machine.gpus[i].uuid == uuid) return i;
  return std::nullopt;
}

const Entry* whole_of(const Entry& entry, const std::vector<Entry>& live, int64_t now_ns) {
  for (const std::string& id : entry.record.inside) {
    const auto outer = std::lower_bound(live.begin(), live.end(), id,
                                        [](const Entry& a, const std::string& b) { return a.id < b; });
    // A lease can be divided only by its own user: no other user may use up parts of it.
    if (outer != live.end() && outer->id == id && outer->record.uid == entry.record.uid &&
        outer->record.kind == Kind::held && outer->id != entry.id && !outer->record.expired(now_ns))
      return &*outer;
  }
  return nullptr;
}

void take(Standing& standing, Bytes bytes, bool exclusive, bool waiting) {
  if (exclusive) standing.taken = true;
  ++(waiting ? standing.waiting : standing.leases);
  standing.available -= bytes;
  if (!waiting) standing.promised += bytes;
}

Ledger make_ledger(const Machine& machine, const std::vector<Entry>& live, const View& view) {
  Ledger ledger;
  for (const Gpu& gpu : machine.gpus) {
    std::vector<Share> shares = shares_of(gpu, live, view);
    Standing standing;
    standing.capacity = std::max(Bytes(0), gpu.capacity());
    for (const Share& share : shares) {
      standing.promised += share.bytes;
      standing.taken = standing.taken || share.record->exclusive;
      ++standing.leases;
    }
    standing.available = standing.capacity - standing.promised;
    if (gpu.free) {
      const Bytes used = std::max(Bytes(0), gpu.capacity() - *gpu.free);
      match_processes(gpu, used, shares, view);
      const Bytes strangers = without_lease(gpu, shares);
      match_the_rest(gpu, used, shares, view);
      Bytes found, unmaterialised;
      for (const Share& share : shares) {
        found += share.found;
        unmaterialised += share.bytes - share.found;
      }
      const Bytes others = std::max(Bytes(0), used - found);
      standing.foreign = gpu.unified ? std::min(strangers, others) : others;
      standing.available =
          std::min(standing.capacity - standing.promised - others, *gpu.free - unmaterialised);
    }
    ledger.push_back(standing);
  }
  return ledger;
}

Ledger make_ledger_inside(const Machine& machine, const std::vector<Entry>& live, const Entry& outer,
                          const View& view) {
  Ledger ledger(machine.gpus.size());
  for (Standing& standing : ledger) standing.allowed = false;
  for (const Claim& claim : outer.record.claims) {
    const std::optional<size_t> at = index_of(machine, claim.uuid);
    if (!at) continue;
    Standing& standing = ledger[*at];
    standing.allowed = true;
    standing.capacity = standing.available = clamp(claim.bytes, machine.gpus[*at]);
  }
  for (const Entry& entry : live) {
    const Record& record = entry.record;
    if (record.kind != Kind::held || record.expired(view.now_ns)) continue;
    const Entry* whole = whole_of(entry, live, view.now_ns);
    if (whole == nullptr || whole->id != outer.id) continue;
    for (const Claim& claim : record.claims)
      if (const std::optional<size_t> at = index_of(machine, claim.uuid); at && ledger[*at].allowed)
        take(ledger[*at], clamp(claim.bytes, machine.gpus[*at]), record.exclusive, false);
  }
  return ledger;
}

void restrict_to(Ledger& ledger, const Machine& machine, const std::vector<std::string>& allowed) {
  for (size_t i = 0; i < ledger.size(); ++i) {
    const bool named = std::find(allowed.begin(), allowed.end(), machine.gpus[i].uuid) != allowed.end();
    ledger[i].allowed = ledger[i].allowed && named;
  }
}

}  // namespace innkeeper::lease
