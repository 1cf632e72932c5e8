// A simulated accelerator: memory with a capacity, queues that run asynchronously, and a virtual clock.
//
// It is adversarial on purpose. A kernel computes at launch, on the thread that launches it. Its results are
// then moved to a side buffer and replaced by poison until they are *published*. A copy reads its source only
// when it is published. Work is published in the order of its queue, and no earlier than a reader is entitled
// to see it. That is when later work on the same queue starts, when work that waits for it starts, or when
// the host synchronises. Fresh and freed memory is poison. A wait that the engine forgets therefore gives
// wrong numbers, on a laptop, every time.
//
// Visibility::late publishes as late as it may, early at once, random draws for each item (seeded).
//
// It does not model how a GPU divides a kernel among its processors. Time is virtual: a kernel takes the time
// of cost/gpu_model.h, a copy latency + bytes / bandwidth (sim/clock.h). It is the same on every run of the
// same program, independent of the real machine and of the visibility.
//
// Thread safety: all methods. Kernels of several threads may compute at the same time, even on one queue:
// these are ordered only as far as their threads are. No lock is held while bytes are copied
// (sim/work_queue.h).
//
// Ownership: memory belongs to the accelerator and stays mapped until it is destroyed. A late copy to freed
// memory therefore corrupts only simulated bytes, never the process. The destructor waits for the queues.
// Events may outlive it.
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
  uint64_t seed = 0;  // Seed for Visibility::random.
  // True: fills fresh and freed memory, and hidden or not yet copied bytes, with poison (a memset each).
  bool poison = true;
  // False: memory is addresses alone (Arena::Options::blank) and is not poisoned. Copies and kernels take
  // their time and move no bytes, except that a copy to the caller's own memory writes zeros.
  bool data = true;
  // Time that the host takes to launch each kernel, s; the accelerator waits for it if its kernels are
  // shorter. 0: the host's clock stands still, unless it waits for the accelerator.
  double host_seconds = 0;
  // True: the planner cannot read kernel times, as on a real GPU. It can read the clock.
  bool times_hidden = false;
  // True kernel times and rates of memory and host link; `gpu` and `host_link` are then only the nominal
  // models. None: they are true.
  std::optional<cost::Truth> truth = std::nullopt;
  cost::GpuModel gpu = cost::default_gpu();
  cost::LinkModel host_link = cost::default_host_link();
  cost::LinkModel peer_link = cost::default_peer_link();
};

// Index of a queue of one accelerator. 0, 1, 2 are innkeeper::Queue's compute, copy_in, copy_out.
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
  // The true models, which differ from the nominal ones if `truth` is set.
  const cost::GpuModel& gpu() const;
  const cost::LinkModel& host_link() const;

  // Memory. `size` > 0 is rounded up to kAlignment. Fails with out_of_memory and the numbers when the live
  // bytes would exceed the capacity. Memory is ordered by the compute queue (device_api.h). Freeing advances
  // that queue past its last wait and past copies that touch the memory, then poisons. It advances no
  // further: other hidden bytes stay hidden. The bytes may be handed out again at once. Pending work, on this
  // queue or others, will still read and write them: that makes the error visible.
  //
  // Work put on `first` from now on may use the result of allocate(): that queue first waits for its users.
  // Other queues must be ordered after it.
  Result<void*> allocate(Bytes size, QueueIndex first = 0);
  void free(void* data);
  // As free(), but not ordered by the compute queue: only `users` may still touch the memory, and it is free
  // as soon as they are done.
  void free_after(void* data, std::span<const Event> users);
  // Sets the limit of the bytes in use at any moment of virtual time. Initially the capacity.
  void set_limit(Bytes limit);
  Bytes live() const;                     // Rounded sizes of the live allocations.
  Bytes size_of(const void* data) const;  // Rounded size; 0 if `data` is not the start of a live block.
  // True for an address inside any memory of this accelerator, live or cached.
  bool contains(const void* data) const;
  Bytes trim();  // Returns the pages of free memory to the system; returns the number of bytes.

  // Queues and events.
  QueueIndex create_queue();
  Event record(QueueIndex queue);
  // Waits for an event of any accelerator. For any other event it blocks, and the event's failure is lost:
  // query the event first.
  void wait(QueueIndex queue, const Event& event);
  bool idle(QueueIndex queue) const;
  void synchronize(QueueIndex queue);
  void synchronize();

  // Copies. Host memory is any memory that is not this accelerator's. With `peer` the bytes cross a peer
  // link, and the copy must be done before the peer is destroyed. Returns an event after the copy. `memory`:
  // kind of the host's memory, which decides the rate.
  enum class Direction : uint8_t { in, out, within, peer };
  Event copy(QueueIndex queue, void* destination, const void* source, size_t size, Direction direction,
             HostMemory memory = HostMemory::pinned);
  // Executes the work that was put on the queue so far. The host has not waited for it, so virtual time
  // stays. A later event is done once that time, or the kernels' time, has reached it.
  void publish(QueueIndex queue);

  // A kernel. begin_kernel publishes all bytes that the queue is entitled to see. The caller then computes on
  // accelerator memory directly. end_kernel hides the written bytes and advances the clock. If the kernel
  // throws, end_kernel must be called all the same (its writes count).
  void begin_kernel(QueueIndex queue);
  void end_kernel(QueueIndex queue, std::span<const WrittenRange> written, cost::KernelCost kernel);

  // Virtual time at which all work put on the queue so far is done, seconds since the start.
  double time(QueueIndex queue) const;
  double time() const;  // The latest of all queues.
  // Seconds that this work takes, without its waits.
  double busy(QueueIndex queue) const;
  // The host's virtual time; 0 if `host_seconds` is 0.
  double host_time() const;
  // Bytes that crossed the links, for tests and reports.
  Bytes copied(Direction direction) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the virtual time of an event of Accelerator::record or copy; 0 for any other event.
double time_of(const Event& event);

// Returns the engine's view of an accelerator, for core alone (the torch layer reaches it through c10).
// Shares ownership.
std::unique_ptr<Device> make_device(std::shared_ptr<Accelerator> accelerator);

}  // namespace innkeeper::sim
