#include "lease/from_snapshot.h"

#include <utility>

#include "lease/process.h"

namespace innkeeper::lease {
namespace {

void set_memory(Card& card, const telemetry::Reading<telemetry::Memory>& memory) {
  if (!memory) return;
  card.total = memory->total;
  card.reserved = memory->reserved;
  card.free = memory->free;
  card.unified = memory->unified;
}

// Sets the processes of the whole GPU or of one instance. A process of unknown size makes all unknown: its
// lease would look as if it had allocated no memory.
void set_processes(Card& card, const telemetry::Card& source, const std::string& instance) {
  if (!source.processes) return;
  card.processes_known = true;
  for (const telemetry::Process& process : *source.processes) {
    if (process.instance_uuid != instance) continue;
    if (!process.used) {
      card.processes_known = false;
      continue;
    }
    card.processes.push_back({*process.used, process_line(process.pid)});
  }
}

// Converts telemetry::better to a number: more NVLinks first, then the shorter path.
double goodness(const telemetry::Link& link) {
  constexpr auto kWorst = static_cast<int>(telemetry::Path::unknown);
  return 100.0 * link.nvlinks + (kWorst - static_cast<int>(link.path));
}

}  // namespace

telemetry::Wanted wanted_for(const Request& request) {
  using telemetry::Wanted;
  Wanted wanted = Wanted::memory | Wanted::processes;
  if (request.by == By::power || request.key) wanted = wanted | Wanted::power;
  if (request.by == By::utilization || request.key) wanted = wanted | Wanted::utilization;
  if (request.count > 1) wanted = wanted | Wanted::links;
  return wanted;
}

Machine from_snapshot(const telemetry::Snapshot& snapshot) {
  Machine machine;
  std::vector<size_t> parents;  // Parent GPU, in the snapshot, of each of machine.cards.
  const auto add = [&](size_t parent, Card card) {
    parents.push_back(parent);
    machine.cards.push_back(std::move(card));
  };
  for (size_t i = 0; i < snapshot.cards.size(); ++i) {
    const telemetry::Card& source = snapshot.cards[i];
    Card card;
    card.vendor = static_cast<int>(source.vendor);
    if (source.power && source.power->limit_watts && *source.power->limit_watts > 0)
      card.power_ratio = source.power->watts / *source.power->limit_watts;
    if (source.utilization) card.utilization = source.utilization->compute_percent / 100.0;
    if (!source.mig) {
      card.uuid = source.uuid;
      set_memory(card, source.memory);
      set_processes(card, source, "");
      add(i, std::move(card));
      continue;
    }
    for (const telemetry::Instance& instance : source.instances) {
      Card part;
      part.uuid = instance.uuid;
      part.vendor = card.vendor;
      part.power_ratio = card.power_ratio;
      set_memory(part, instance.memory);
      set_processes(part, source, instance.uuid);
      add(i, std::move(part));
    }
  }
  const size_t count = snapshot.cards.size();
  if (snapshot.links.size() != count * count) return machine;
  for (const size_t a : parents)
    for (const size_t b : parents) machine.links.push_back(goodness(snapshot.links[a * count + b]));
  return machine;
}

}  // namespace innkeeper::lease
