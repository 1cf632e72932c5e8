#include "residency/block/stamps.h"

namespace innkeeper {

void Stamps::launched(Bytes bytes) {
  const int64_t written = written_.fetch_add(bytes.count(), std::memory_order_relaxed) + bytes.count();
  const int64_t operators = operators_.fetch_add(1, std::memory_order_relaxed) + 1;
  // A device that fails says so to the next operator that needs it.
  if (written >= kMuch || operators >= kFew) (void)mark();
}

Result<Event> Stamps::after(Stamp stamp) {
  {
    MutexLock lock(mutex_);
    if (Event passed = marks_.find(stamp)) return passed;
  }
  return mark();
}

// The clock is read first, so the work of every stamp up to then is on the queue before the event.
Result<Event> Stamps::mark() {
  written_.store(0, std::memory_order_relaxed);
  operators_.store(0, std::memory_order_relaxed);
  const Stamp covers = clock_.load(std::memory_order_seq_cst);
  Result<Event> event = device_.record(Queue::compute);
  if (!event.ok()) return event;
  MutexLock lock(mutex_);
  marks_.add(covers, event.value());
  return event;
}

}  // namespace innkeeper
