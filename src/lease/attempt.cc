#include "lease/attempt.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "lease/arbiter.h"
#include "lease/places.h"
#include "lease/process.h"

namespace innkeeper::lease {
namespace {

// Limits on the GPUs and holders that a message names; `status` shows all.
constexpr size_t kMaxGpusShown = 8;
constexpr size_t kMaxHoldersShown = 3;

// Subtracts a place's claim from the ledger: GPUs that it could take now, else those that it waits for.
void set_aside(const Machine& machine, const Record& place, Ledger& ledger) {
  const Wish wish = wish_of(place);
  if (wish.count < 1) return;
  Ledger its = ledger;
  if (!place.allowed.empty()) restrict_to(its, machine, place.allowed);
  std::vector<size_t> gpus;
  if (const auto now = choose(machine, its, wish, scores(machine, its, By::free, {}))) {
    gpus = *now;
  } else {
    for (const Claim& claim : place.claims)
      if (const auto at = index_of(machine, claim.uuid); at && gpus.size() < static_cast<size_t>(wish.count))
        gpus.push_back(*at);
  }
  for (const size_t gpu : gpus)
    take(ledger[gpu], std::min(part_of(ledger[gpu], wish), ledger[gpu].capacity), wish.exclusive, true);
}

std::string holders(const std::vector<Entry>& live, const std::string& uuid) {
  std::string text;
  size_t shown = 0, more = 0;
  for (const Entry& entry : live) {
    const Record& record = entry.record;
    if (record.kind != Kind::held) continue;
    for (const Claim& claim : record.claims) {
      if (claim.uuid != uuid) continue;
      if (++shown > kMaxHoldersShown) {
        ++more;
        continue;
      }
      text += (text.empty() ? "" : ", ") + to_string(claim.bytes) + (record.exclusive ? " (all of it)" : "") +
              " to " + user_name(record.uid) + " pid " + std::to_string(record.process.pid) + " (" +
              shown_command(record).substr(0, 40) + ")";
    }
  }
  if (more > 0) text += " and " + std::to_string(more) + " more";
  return text;
}

std::string listed(const std::vector<std::string>& uuids) {
  constexpr size_t kMostListed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(uuids.size(), kMostListed); ++i) text += (i == 0 ? "" : ", ") + uuids[i];
  if (uuids.size() > kMostListed) text += " and " + std::to_string(uuids.size() - kMostListed) + " more";
  return text.empty() ? "no GPU" : text;
}

}  // namespace

Attempt::Attempt(const Request& asked, const Machine& snapshot, int64_t when_ns)
    : request(asked), machine(snapshot), asked_ns(when_ns), wish(wish_of(asked)) {
  sign(record);
  record.exclusive = wish.exclusive;
  record.job = printable(request.job);
  if (request.key)
    for (const Gpu& gpu : machine.gpus) keys.push_back(request.key(gpu));
}

Status Attempt::weigh(const std::optional<LeaseFile>& place) {
  const View view{machine_clock_ns(), record.pid_namespace};
  if (request.inside.empty()) {
    ledger = make_ledger(machine, live, view);
  } else {
    const auto outer = std::find_if(live.begin(), live.end(), [&](const Entry& entry) {
      return entry.id == request.inside && entry.record.kind == Kind::held && entry.record.uid == record.uid;
    });
    if (outer == live.end())
      return Status(
          Code::unavailable,
          "the lease " + printable(request.inside) +
              ", inside which GPUs were asked for, has ended or is another user's; to ask outside of "
              "it: unset INNKEEPER_LEASE INNKEEPER_LEASE_FD");
    record.inside = outer->record.inside;
    record.inside.insert(record.inside.begin(), outer->id);
    if (record.inside.size() > kMaxWholes)
      return Status(Code::invalid_argument, "asked for a part of the lease " + outer->id +
                                                ", which is a part " + std::to_string(kMaxWholes) +
                                                " deep: that is the most");
    ledger = make_ledger_inside(machine, live, *outer, view);
  }
  in_line = place.has_value();
  const Entry own = place ? Entry{place->id, place->record, 0} : Entry{};
  const auto places =
      places_ahead(live, request, record.uid, place ? &own : nullptr, view.now_ns, record.pid_namespace);
  for (const Entry* entry : places) set_aside(machine, entry->record, ledger);
  turn.ahead = static_cast<int>(places.size());
  turn.files = static_cast<int>(live.size());
  turn.guard = turn.ahead < kFront ? "" : places[places.size() - kFront]->id;
  if (request.allowed) restrict_to(ledger, machine, *request.allowed);
  return Status::okay();
}

bool Attempt::ever() const {
  // A place in line fitted once; a GPU whose memory cannot be read at the moment does not change that.
  const size_t most = most_of_one_vendor(machine, [&](size_t i) {
    const bool unknown = in_line && ledger[i].allowed && machine.gpus[i].total == Bytes(0);
    return unknown || can_ever_fit(ledger[i], wish);
  });
  return most >= static_cast<size_t>(wish.count);
}

Record Attempt::granted(const std::vector<size_t>& gpus) const {
  Record result = record;
  result.kind = Kind::held;
  result.since_ns = machine_clock_ns();
  if (request.expires_after)
    result.expires_ns = result.since_ns + std::chrono::nanoseconds(*request.expires_after).count();
  for (const size_t gpu : gpus) result.claims.push_back({machine.gpus[gpu].uuid, part_of(ledger[gpu], wish)});
  std::sort(result.claims.begin(), result.claims.end(),
            [](const Claim& a, const Claim& b) { return a.uuid < b.uuid; });
  return result;
}

Record Attempt::waiting(const std::vector<size_t>& gpus) const {
  Record result = granted(gpus);
  result.kind = Kind::waiting;
  result.since_ns = asked_ns;
  result.expires_ns = 0;
  result.count = wish.count;
  result.each = wish.memory;
  if (request.allowed)
    for (const Gpu& gpu : machine.gpus)
      if (std::find(request.allowed->begin(), request.allowed->end(), gpu.uuid) != request.allowed->end())
        result.allowed.push_back(gpu.uuid);
  // An empty list allows every GPU.
  if (result.allowed.size() == machine.gpus.size()) result.allowed.clear();
  return result;
}

std::string Attempt::limits() const {
  std::string text;
  const auto outer =
      std::find_if(live.begin(), live.end(), [&](const Entry& entry) { return entry.id == request.inside; });
  if (!request.inside.empty() && outer != live.end()) {
    std::vector<std::string> held;
    for (const Claim& claim : outer->record.claims) held.push_back(claim.uuid);
    text = "the lease " + outer->id + ", in which this runs, holds " + listed(held);
  }
  if (request.allowed && request.allowed->size() < machine.gpus.size() && !request.allowed_by.empty()) {
    text += (text.empty() ? "" : "; ") + request.allowed_by + " gives " + listed(*request.allowed);
    const bool none = std::none_of(ledger.begin(), ledger.end(), [](const Standing& s) { return s.allowed; });
    if (none && !request.inside.empty()) text += ": unset it, or name a GPU of the lease";
  }
  return text.empty() ? text : " (" + text + ")";
}

Status Attempt::refusal() const {
  const size_t fitting = most_of_one_vendor(machine, [&](size_t i) { return fits(ledger[i], wish); });
  const size_t of_one_vendor = most_of_one_vendor(machine, [&](size_t i) { return ledger[i].allowed; });
  const auto allowed =
      std::count_if(ledger.begin(), ledger.end(), [](const Standing& s) { return s.allowed; });
  std::string text = "asked for " + describe(request) + ", ";
  if (!ever()) {
    text += "but of " + std::to_string(allowed) + (allowed == 1 ? " GPU" : " GPUs") + " that may be used" +
            limits() + " not so many have that even when idle";
  } else {
    text += std::to_string(fitting) + (fitting == 1 ? " has" : " have") + " that now";
  }
  if (wish.count > 1 && of_one_vendor < static_cast<size_t>(allowed))
    text += " (of one vendor, who has " + std::to_string(of_one_vendor) + ")";
  if (turn.ahead > 0) text += ", " + std::to_string(turn.ahead) + " waiting ahead";
  size_t shown = 0;
  for (size_t i = 0; i < ledger.size(); ++i) {
    if (!ledger[i].allowed) continue;
    if (++shown > kMaxGpusShown) {
      text += "; and " + std::to_string(allowed - static_cast<std::ptrdiff_t>(kMaxGpusShown)) + " more GPUs";
      break;
    }
    const Standing& standing = ledger[i];
    const std::string who = holders(live, machine.gpus[i].uuid);
    text += "; " + machine.gpus[i].uuid + ": " + to_string(std::max(Bytes(0), standing.available)) +
            " left of " + to_string(standing.capacity) + ", promised " + to_string(standing.promised);
    if (!who.empty()) text += " (" + who + ")";
    if (standing.foreign > Bytes(0)) text += ", used without a lease " + to_string(standing.foreign);
    if (standing.waiting > 0) text += ", kept for " + std::to_string(standing.waiting) + " waiting";
  }
  if (ever() && !request.wait) text += ". --wait waits in line";
  return Status(ever() ? Code::busy : Code::invalid_argument, text);
}

}  // namespace innkeeper::lease
