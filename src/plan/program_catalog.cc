#include "plan/program_catalog.h"

#include <algorithm>
#include <utility>

namespace innkeeper::plan {
namespace {

// Whether the last `count` operators are those of the program that end with this step.
bool agrees(const Program& program, int64_t step, int64_t births_before, const History& history,
            int64_t count) {
  int64_t operation = history.end() - 1;
  for (int64_t i = 0; i < count; ++i, --operation, --step) {
    if (operation < history.begin()) return false;
    if (step < 0) {
      step += program.length();
      births_before -= program.births;
    }
    if (!program.is_step(step, births_before, history, operation)) return false;
  }
  return true;
}

}  // namespace

KnownProgram& ProgramCatalog::add(Program period) { return entries_.emplace_front(std::move(period)).known; }

void ProgramCatalog::index(KnownProgram& known) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&known](const CatalogEntry& each) { return &each.known == &known; });
  entry->indexed = true;
  for (int64_t step = 0; step < known.program().length(); ++step) {
    if (const auto key = known.program().key_of(step)) steps_.emplace(*key, IndexedStep{&known, step});
  }
}

void ProgramCatalog::remove(const KnownProgram& known) {
  entries_.remove_if([this, &known](const CatalogEntry& entry) {
    if (&entry.known != &known) return false;
    if (entry.indexed)
      std::erase_if(steps_, [&known](const auto& indexed) { return indexed.second.known == &known; });
    return true;
  });
}

const KnownProgram* ProgramCatalog::surplus() const {
  return entries_.size() > kMostPrograms ? &entries_.back().known : nullptr;
}

std::optional<PlanPosition> ProgramCatalog::find(const History& history) const {
  const uint64_t key = history.at(history.end() - 1).key;
  // equal_range() would walk through all positions with the key.
  auto found = steps_.find(key);
  for (int tries = 0; found != steps_.end() && found->first == key && tries < kMostPositions;
       ++found, ++tries) {
    KnownProgram& known = *found->second.known;
    const int64_t step = found->second.step;
    const Program& program = known.program();
    const int64_t births_before = history.births() - program.steps[static_cast<size_t>(step)].births;
    if (!agrees(program, step, births_before, history, kRejoinLength)) continue;
    if (step + 1 == program.length()) return PlanPosition{&known, 0, births_before + program.births};
    return PlanPosition{&known, step + 1, births_before};
  }
  return std::nullopt;
}

}  // namespace innkeeper::plan
