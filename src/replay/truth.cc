#include "replay/truth.h"

#include "replay/player.h"

namespace innkeeper::replay {

trace::Record with_true_kernels(const trace::Record& record, const cost::Truth& truth) {
  trace::Record changed = record;
  for (trace::Entry& entry : changed.entries) {
    if (entry.kind != trace::Entry::Kind::operation) continue;
    entry.work = work_of(record, entry);
    const double slower =
        truth.slower(entry.text, {.bytes = entry.work.bytes, .precision = entry.work.precision});
    entry.work.flops *= slower;
    entry.work.bytes *= slower;
  }
  return changed;
}

}  // namespace innkeeper::replay
