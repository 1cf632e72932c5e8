#include "replay/truth.h"

#include "replay/player.h"

namespace innkeeper::replay {

trace::AccessRecord with_true_kernels(const trace::AccessRecord& record, const cost::Truth& truth) {
  trace::AccessRecord changed = record;
  for (trace::RecordEntry& entry : changed.entries) {
    if (entry.kind != trace::RecordEntry::Kind::operation) continue;
    entry.work = work_of(record, entry);
    const double slower =
        truth.slower(entry.text, {.bytes = entry.work.bytes, .precision = entry.work.precision});
    entry.work.flops *= slower;
    entry.work.bytes *= slower;
  }
  return changed;
}

}  // namespace innkeeper::replay
