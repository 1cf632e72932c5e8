// One queue of a simulated accelerator: work is enqueued now and executed no earlier than it must be.
//
// Items are executed in order, by the thread that advances the queue. A wait item is executed once the queue
// that it waits for, of any accelerator, has come far enough; advancing first advances that queue. Waits
// refer to earlier points, so there are no cycles, and advancing always ends.
//
// Locks: one mutex for all queues of the process (waits cross accelerators), held only for bookkeeping. Bytes
// are copied without it: the queue is marked as running meanwhile, so that its order holds. Lock order: this
// mutex may be held while Arena's is taken, never the reverse.
//
// Time: each queue has a virtual time, advanced when work is put on it, so it does not depend on the
// time of execution.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "base/thread_annotations.h"
#include "device/arena.h"
#include "device/device_api.h"
#include "sim/accelerator.h"

namespace innkeeper::sim {

class WorkQueue;

// Guards the bookkeeping of every queue of the process.
inline Mutex machine_mutex;

// A number of items of a queue; an event is done when that many have been executed.
using Position = uint64_t;

class SimEvent final : public EventState {
 public:
  SimEvent(std::shared_ptr<WorkQueue> queue, Position position, double time)
      : queue_(std::move(queue)), position_(position), time_(time) {}
  // Polls report the end of unexecuted work only the second time. A program that polls once gets "not yet",
  // as it may on a real GPU; a loop that polls ends.
  bool done() override;
  Status synchronize() override;

  bool passed() const;
  const std::shared_ptr<WorkQueue>& queue() const { return queue_; }
  Position position() const { return position_; }
  double time() const { return time_; }

 private:
  const std::shared_ptr<WorkQueue> queue_;
  const Position position_;
  const double time_;
  std::atomic<bool> polled_ = false;
};

// Bytes that are hidden until they are published, in a buffer from an arena.
class Hidden {
 public:
  Hidden(std::shared_ptr<Arena> arena, WrittenRange range, bool poison);
  Hidden(Hidden&& other) noexcept;
  ~Hidden();
  Hidden& operator=(Hidden&&) = delete;

  void publish();
  // Makes publish() write poison: the memory was freed, and its next owner must not be overtaken.
  void spoil() { fate_ = Fate::poison; }
  // Makes publish() write no bytes: the present owner of the memory came after this.
  void forget() { fate_ = Fate::nothing; }
  bool spoiled() const { return fate_ == Fate::poison; }
  const WrittenRange& range() const { return range_; }

 private:
  std::shared_ptr<Arena> arena_;
  WrittenRange range_;
  void* bytes_;  // Null once published.
  enum class Fate : uint8_t { bytes, poison, nothing };
  Fate fate_ = Fate::bytes;  // Content that publish() writes.
};

struct Copy {
  void* destination;
  const void* source;
  size_t size;
};

// One of: hidden results to publish, a copy, a wait.
struct Item {
  std::vector<Hidden> results = {};
  Copy copy = {};
  std::shared_ptr<SimEvent> wait = nullptr;
  bool in_time = true;  // For a wait, true: later items are later in virtual time as well.

  bool touches(const void* data, size_t size) const;
  void execute();
};

// State that the queues of one accelerator share.
struct HostTime {
  // The host's clock: the latest moment, in virtual time, that it knows to have passed. Work that it enqueues
  // later does not start earlier.
  double seen IK_GUARDED_BY(machine_mutex) = 0;
  // End of the kernels so far, and ends of the last ones, in a ring.
  double kernels IK_GUARDED_BY(machine_mutex) = 0;
  std::vector<double> ends IK_GUARDED_BY(machine_mutex);
  size_t launched IK_GUARDED_BY(machine_mutex) = 0;
};

class WorkQueue : public std::enable_shared_from_this<WorkQueue> {
 public:
  // `computes`: the queue runs the accelerator's kernels.
  WorkQueue(std::shared_ptr<HostTime> host, bool computes) : host_(std::move(host)), computes_(computes) {}

  bool idle() const { return passed(enqueued_.load(std::memory_order_relaxed)); }
  bool passed(Position position) const { return executed_.load(std::memory_order_acquire) >= position; }

  // Enqueues an item. `seconds`: its cost.
  std::shared_ptr<SimEvent> push(Item item, double seconds) IK_EXCLUDES(machine_mutex);
  // For work that is executed already, or has no execution: advances only the time, past `not_before`.
  void spend(double seconds, double not_before = 0) IK_EXCLUDES(machine_mutex);
  std::shared_ptr<SimEvent> tail() IK_EXCLUDES(machine_mutex);
  // Executes the items up to `position`, and all items for which they wait.
  void advance(Position position) IK_EXCLUDES(machine_mutex);
  void advance() { advance(enqueued_.load(std::memory_order_relaxed)); }
  // Executes the items enqueued so far, whose last one still ends at its time.
  void publish() IK_EXCLUDES(machine_mutex);
  // Returns whether virtual time has not reached the end of the last item of publish(), which
  // ends at `position`.
  bool is_early(Position position) const IK_EXCLUDES(machine_mutex);
  // Call it before a range is freed: advances past the last item that is a wait or a copy that touches it.
  // With `spoil`, results of kernels that stay hidden in the range become poison: a next owner of the memory
  // that does not wait for this queue finds poison later. Without `spoil` they are published now.
  void advance_past(const void* data, size_t size, bool spoil) IK_EXCLUDES(machine_mutex);
  // Call it after advance_past(): poisons the freed range, which has no owner yet. It excludes poison that
  // another thread publishes there.
  void poison(void* data, size_t size) IK_EXCLUDES(machine_mutex);
  // The range is given to a kernel that computes already, so pending items can no longer be published.
  // Waiting poison would overwrite the kernel's results, and is discarded.
  void forget_spoiled(const void* data, size_t size) IK_EXCLUDES(machine_mutex);
  // The host has seen that `time` has passed.
  void host_saw(double time) IK_EXCLUDES(machine_mutex);
  // The host launches a kernel, which takes `seconds`, or longer until the queue has space for it.
  void launch(double seconds) IK_EXCLUDES(machine_mutex);
  double host_time() const IK_EXCLUDES(machine_mutex);
  double time() const IK_EXCLUDES(machine_mutex);
  double busy() const IK_EXCLUDES(machine_mutex);  // Seconds of the work put on it so far, without waits.

 private:
  double start() const IK_REQUIRES(machine_mutex);
  void finish_front() IK_REQUIRES(machine_mutex);
  void came_to(double time) IK_REQUIRES(machine_mutex);

  struct Published {
    Position position;
    double time;  // Time of its end.
  };

  const std::shared_ptr<HostTime> host_;
  const bool computes_;
  std::vector<Published> published_ IK_GUARDED_BY(machine_mutex);  // Those that were early at the last look.
  std::atomic<bool> any_published_ = false;
  // Written with the mutex held. executed_ is released after an item's bytes are in place, so that a thread
  // that reads it (acquire) without the lock sees them.
  std::atomic<Position> enqueued_ = 0;
  std::atomic<Position> executed_ = 0;
  // Items that are not executed; the front one may be running.
  std::deque<Item> items_ IK_GUARDED_BY(machine_mutex);
  bool running_ IK_GUARDED_BY(machine_mutex) = false;
  double time_ IK_GUARDED_BY(machine_mutex) = 0;
  double busy_ IK_GUARDED_BY(machine_mutex) = 0;
};

}  // namespace innkeeper::sim
