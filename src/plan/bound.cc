#include "plan/bound.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace innkeeper::plan {
namespace {

// From its first use in the round that makes it to its last, which may be in a later round.
struct Life {
  int64_t first = INT64_MAX;
  int64_t last = INT64_MIN;
  int64_t size = 0;
};

int64_t floor_of(int64_t number, int64_t by) { return (number >= 0 ? number : number - by + 1) / by; }

}  // namespace

Bytes live_excess(const Program& program, NodeId node, Bytes room) {
  const int64_t length = program.length();
  std::unordered_map<int64_t, int64_t> lasting;  // sizes by name: those are always between two uses
  std::unordered_map<int64_t, Life> passing;     // by their number among a round's births
  for (int64_t step = 0; step < length; ++step) {
    if (program.steps[static_cast<size_t>(step)].node != node) continue;
    for (const Program::Use& use : program.uses_of(step)) {
      if (use.slot.lasting) {
        lasting[use.slot.number] = round_up(use.size).count();
        continue;
      }
      if (program.births == 0) continue;  // such a slot is none
      // So many rounds ago it was made; that round is the one that counts.
      const int64_t rounds = -floor_of(use.slot.number - 1, program.births);
      Life& life = passing[use.slot.number + rounds * program.births];
      life.first = std::min(life.first, step + rounds * length);
      life.last = std::max(life.last, step + rounds * length);
      life.size = round_up(use.size).count();
    }
  }
  int64_t always = 0;
  for (const auto& [name, size] : lasting) always += size;
  std::vector<int64_t> change(static_cast<size_t>(length) + 1);
  for (const auto& [number, life] : passing) {
    const int64_t operators = life.last - life.first + 1;
    always += operators / length * life.size;
    const int64_t from = life.first % length;
    const int64_t to = from + operators % length;
    change[static_cast<size_t>(from)] += life.size;
    change[static_cast<size_t>(std::min(to, length))] -= life.size;
    if (to > length) {
      change[0] += life.size;
      change[static_cast<size_t>(to - length)] -= life.size;
    }
  }
  int64_t most = 0;
  for (int64_t step = 0, live = 0; step < length; ++step)
    most = std::max(most, live += change[static_cast<size_t>(step)]);
  return std::max(Bytes(always + most) - room, Bytes(0));
}

}  // namespace innkeeper::plan
