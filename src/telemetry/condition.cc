#include "telemetry/condition.h"

#include <algorithm>

namespace innkeeper::telemetry {

Condition condition_of(const Snapshot& cards, std::string_view uuid) {
  const Card* const card = cards.find(uuid);
  if (card == nullptr) return {};
  Condition found;
  found.slowed = card->clocks && card->clocks->slowed;
  if (!card->processes) return found;
  const bool is_instance = cards.find_instance(uuid) != nullptr;
  const auto has_it = [&](const Process& process) {
    return !is_instance || process.instance_uuid.empty() || process.instance_uuid == uuid;
  };
  found.shared = std::ranges::count_if(*card->processes, has_it) > 1;
  return found;
}

}  // namespace innkeeper::telemetry
