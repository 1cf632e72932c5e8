// A simulated accelerator: memory with a capacity, queues that run asynchronously, and a virtual clock.
//
// It is adversarial on purpose. A kernel computes at launch, on the thread that launches it, but what it
// wrote is then taken away into a side buffer and replaced by poison until it is *published*; a copy reads
// its source only when it is published. Work is published in the order of its queue, and no earlier than
// a reader is entitled to see it: when later work on the same queue starts, when work that waits for it
// starts, or when the host synchronises. Fresh and freed memory is poison. So a wait that the engine forgets
// gives wrong numbers, on a laptop, every time.
//
// Visibility::late publishes as late as it may, early at once, random draws for each item (seeded).
//
// What it is not: a model of how a GPU splits a kernel among its processors. Time is virtual: a kernel takes
// what cost/gpu_model.h says, a copy latency + bytes / bandwidth (sim/clock.h). It is the same on every run
// with the same program, whatever the real machine does and whatever is visible when.
//
// Thread safety: all methods. Kernels of several threads may compute at the same time, on one queue too:
// those are ordered only as far as their threads are. No lock is held while bytes are copied
// (sim/work_queue.h).
//
// Ownership: memory belongs to the accelerator and stays mapped until it is destroyed, so that a late copy to
// freed memory corrupts simulated bytes only, never the process. Its destructor waits for its queues. Events
// may outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "cost/truth.h"
#include "device/device_api.h"

namespace innkeeper::sim {

// The byte that fills memory that no reader is entitled to: NaN as float of any width, -1 as an integer.
inline constexpr unsigned char kPoison = 0xFF;

// Copies of pageable host memory are slower.
enum class HostMemory : uint8_t { pinned, pageable };

enum class Visibility : uint8_t { early, late, random };

struct Options {
  std::string name = "sim:0";
  Bytes capacity = MiB(64);
  Visibility visibility = Visibility::late;
  uint64_t seed = 0;   // for Visibility::random
  bool poison = true;  // fill fresh and freed memory, and what is hidden or not yet copied (a memset each)
  // Without: memory is addresses alone (Arena::Options::blank), nothing is poisoned, copies and kernels cost
  // their time and move nothing, except that a caller that copies to memory of its own gets zeros.
  bool data = true;
  // The host takes so long to launch each kernel; the accelerator waits for it where its kernels are shorter.
  // 0: its clock stands still, unless it waits for the accelerator.
  double host_seconds = 0;
  // The planner cannot read kernel times, as on a real GPU. It can read the clock.
  bool times_hidden = false;
  // Kernels take as long as this says; memory and the link to the host are as fast as it has them. `gpu` and
  // `host_link` are what their names promise.
  std::optional<cost::Truth> truth = std::nullopt;
  cost::GpuModel gpu = cost::default_gpu();
  cost::LinkModel host_link = cost::default_host_link();
  cost::LinkModel peer_link = cost::default_peer_link();
};

// Names a queue of one accelerator. 0, 1, 2 are innkeeper::Queue's compute, copy_in, copy_out.
using QueueIndex = uint32_t;

struct WrittenRange {
  void* data;
  size_t size;
};

class Accelerator {
 public:
  explicit Accelerator(Options options);
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  const Options& options() const;
  // As they are, where `truth` is not what their names promise.
  const cost::GpuModel& gpu() const;
  const cost::LinkModel& host_link() const;

  // Memory. `size` > 0 is rounded up to kAlignment; fails with out_of_memory and the numbers when more than
  // the capacity would be alive. Memory is ordered by the compute queue (device_api.h): freeing advances that
  // queue past its last wait and past copies that touch the memory (not further: what else is hidden there
  // stays hidden), then poisons; the bytes may be handed out again at once. Work that is still pending, on
  // this queue or others, will read and write them all the same: that is the error which is to show.
  //
  // Work put on `first` from now on may use what allocate() returns: that queue waits for its users
  // before. Other queues must be ordered after it.
  Result<void*> allocate(Bytes size, QueueIndex first = 0);
  void free(void* data);
  // As free(), but not ordered by the compute queue: `users` are all that may still touch the memory, and it
  // is free as soon as they are done.
  void free_after(void* data, std::span<const Event> users);
  // In virtual time no more than this is ever in use at once. At first the capacity.
  void set_limit(Bytes limit);
  Bytes live() const;  // rounded sizes of what is allocated now
  Bytes size_of(
      const void* data) const;  // the rounded size; 0 if `data` is not the start of a live allocation
  bool contains(const void* data) const;  // inside any memory of this accelerator, live or cached
  Bytes trim();  // gives the pages of free memory back to the system; returns how much

  // Queues and events.
  QueueIndex create_queue();
  Event record(QueueIndex queue);
  // An event of any accelerator; for an event of anything else it blocks, and its failure is lost: ask it
  // first.
  void wait(QueueIndex queue, const Event& event);
  bool idle(QueueIndex queue) const;
  void synchronize(QueueIndex queue);
  void synchronize();

  // Copies. Host memory is any memory that is not this accelerator's. With `peer` the bytes cross a peer
  // link; it must be done before the peer is destroyed. Returns an event behind the copy. `memory`: what the
  // host's end is, which decides the rate.
  enum class Direction : uint8_t { in, out, within, peer };
  Event copy(QueueIndex queue, void* destination, const void* source, size_t size, Direction direction,
             HostMemory memory = HostMemory::pinned);
  // Executes what was put on the queue so far. The host has not waited for it: virtual time stays, and an
  // event behind it is done once that, or the kernels' time, has come so far.
  void publish(QueueIndex queue);

  // A kernel: begin_kernel publishes all that the queue is entitled to see; then the caller computes, reading
  // and writing accelerator memory directly; then end_kernel hides what was written and moves the clock. If
  // the kernel throws, end_kernel must be called all the same (its writes count).
  void begin_kernel(QueueIndex queue);
  void end_kernel(QueueIndex queue, std::span<const WrittenRange> written, cost::KernelCost kernel);

  // The virtual time at which all work put on the queue so far is done, in seconds since the start.
  double time(QueueIndex queue) const;
  double time() const;  // over all queues
  // Seconds that this work takes, without what it waits for.
  double busy(QueueIndex queue) const;
  // The host's virtual time; 0 where `host_seconds` is.
  double host_time() const;
  // Bytes that crossed the links, for tests and reports.
  Bytes copied(Direction direction) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The virtual time of an event made by Accelerator::record or copy; of any other event 0.
double time_of(const Event& event);

// The engine's view of an accelerator, for core alone (the torch layer reaches it through c10). Shares
// ownership.
std::unique_ptr<Device> make_device(std::shared_ptr<Accelerator> accelerator);

}  // namespace innkeeper::sim
