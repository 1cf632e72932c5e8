#include "sim/accelerator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "base/free_space_clock.h"
#include "base/heap_reserve.h"
#include "base/splitmix64.h"
#include "device/arena.h"
#include "sim/clock.h"
#include "sim/work_queue.h"

namespace innkeeper::sim {
namespace {

constexpr size_t kMaxQueues = 256;
constexpr QueueIndex kCompute = 0;
constexpr size_t kDirections = 4;

// Returns the ranges sorted, without overlaps and empty ranges: bytes that are hidden twice would be lost, as
// the second hiding stores poison.
std::vector<WrittenRange> merge(std::span<const WrittenRange> written) {
  std::vector<WrittenRange> ranges;
  for (const WrittenRange& range : written) {
    if (range.size > 0) ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.data < b.data; });
  size_t count = 0;
  for (const WrittenRange& range : ranges) {
    WrittenRange* last = count == 0 ? nullptr : &ranges[count - 1];
    auto* end = last == nullptr ? nullptr : static_cast<std::byte*>(last->data) + last->size;
    if (last != nullptr && range.data <= end) {
      end = std::max(end, static_cast<std::byte*>(range.data) + range.size);
      last->size = static_cast<size_t>(end - static_cast<std::byte*>(last->data));
    } else {
      ranges[count++] = range;
    }
  }
  ranges.resize(count);
  return ranges;
}

Options settled(Options options) {
  options.poison = options.poison && options.data;
  return options;
}

bool disjoint(const Copy& copy) {
  const auto destination = reinterpret_cast<uintptr_t>(copy.destination);
  const auto source = reinterpret_cast<uintptr_t>(copy.source);
  return destination + copy.size <= source || source + copy.size <= destination;
}

}  // namespace

class Accelerator::Impl {
 public:
  explicit Impl(Options wanted)
      : options(settled(std::move(wanted))),
        memory({.name = options.name,
                .cache_limit = options.capacity,
                .keep_mapped = true,
                .blank = !options.data,
                .settle = [this] { finish(); }}),
        side(std::make_shared<Arena>(
            Arena::Options{.name = options.name + " side buffers", .cache_limit = MiB(256)})),
        state_(options.seed),
        space_(options.capacity.count()) {
    for (int i = 0; i < 3; ++i) create_queue();
  }

  QueueIndex create_queue() {
    MutexLock lock(mutex_);
    const QueueIndex index = count_.load(std::memory_order_relaxed);
    IK_CHECK(index < kMaxQueues, "too many queues on " + options.name);
    queues_[index] = std::make_shared<WorkQueue>(host_, /*computes=*/index == kCompute);
    count_.store(index + 1, std::memory_order_release);
    return index;
  }

  WorkQueue& queue(QueueIndex index) const {
    IK_CHECK(index < count_.load(std::memory_order_acquire), options.name + " has no such queue");
    return *queues_[index];
  }

  // Executes all work of all queues. The host has not waited for it, so virtual time stays.
  void finish() const {
    for (QueueIndex index = 0; index < queue_count(); ++index) queue(index).advance();
  }

  QueueIndex queue_count() const { return count_.load(std::memory_order_acquire); }

  // Returns whether the next item of an idle queue is executed when it is put there.
  bool at_once() {
    if (options.visibility == Visibility::early) return true;
    if (options.visibility == Visibility::late) return false;
    MutexLock lock(mutex_);
    const uint64_t drawn = splitmix64(state_);
    state_ += kSplitMix64Step;
    return (drawn & 1) != 0;
  }

  // Counts `size` as in use if the capacity holds it; else sets `now` to the bytes in use.
  bool reserve(int64_t size, int64_t& now) {
    now = in_use.load(std::memory_order_relaxed);
    do {
      if (size > options.capacity.count() - now) return false;
    } while (!in_use.compare_exchange_weak(now, now + size, std::memory_order_relaxed));
    return true;
  }

  // Users that may still touch a piece of free memory.
  struct Fence {
    std::vector<std::shared_ptr<SimEvent>> users;
    // True: the only user is the compute queue as it was at the free; the bytes are poison.
    bool in_order = true;
  };

  void give_back(void* data, Fence fence) {
    const Bytes size = memory.size_of(data);
    double time = 0;
    for (const auto& user : fence.users) time = std::max(time, user->time());
    const bool in_order = fence.in_order;
    {
      MutexLock lock(mutex_);
      space_.give(time, size.count());
      fences_[data] = std::move(fence);
    }
    memory.free(data, /*busy=*/!in_order);
    in_use.fetch_sub(size.count(), std::memory_order_relaxed);
  }

  Fence take(void* data, Bytes size, QueueIndex first, double now, double& since) {
    MutexLock lock(mutex_);
    since = first == kCompute ? space_.take_newest(size.count(), now) : space_.take_oldest(size.count());
    const auto found = fences_.find(data);
    if (found == fences_.end()) return {};
    Fence fence = std::move(found->second);
    fences_.erase(found);
    return fence;
  }

  // Makes work put on the queue from now on execute after the event, whatever its time.
  void order(WorkQueue& later, const std::shared_ptr<SimEvent>& event) {
    const bool now = at_once() && later.idle();
    if (event->passed() && later.idle()) return;
    const auto waited = later.push({.wait = event, .in_time = false}, 0);
    if (now) later.advance(waited->position());
  }

  void set_limit(Bytes limit, double now) {
    MutexLock lock(mutex_);
    space_.set_limit(limit.count(), now);
  }

  double seconds(size_t size, Direction direction, HostMemory host_end) const {
    if (direction == Direction::within) return copy_within_seconds(gpu, size);
    if (direction == Direction::peer) return copy_seconds(options.peer_link, size);
    return copy_seconds(host_link, size, host_end);
  }

  const Options options;
  const cost::GpuModel gpu = options.truth ? options.truth->with_true_memory(options.gpu) : options.gpu;
  const cost::LinkModel host_link =
      options.truth ? options.truth->with_true_rate(options.host_link) : options.host_link;
  Arena memory;
  const std::shared_ptr<Arena> side;
  std::array<std::atomic<int64_t>, kDirections> copied = {};
  std::atomic<int> computing = 0;  // Number of kernels between their begin and their end.
  // Bytes in use, for the check against the capacity; equal to memory.live() at rest.
  std::atomic<int64_t> in_use = 0;

 private:
  Mutex mutex_;
  const std::shared_ptr<HostTime> host_ = std::make_shared<HostTime>();
  // Each element is written once, before count_ includes it.
  std::array<std::shared_ptr<WorkQueue>, kMaxQueues> queues_;
  std::atomic<QueueIndex> count_ = 0;
  uint64_t state_ IK_GUARDED_BY(mutex_);
  FreeSpaceClock space_ IK_GUARDED_BY(mutex_);
  std::unordered_map<void*, Fence> fences_ IK_GUARDED_BY(mutex_);  // Fences of free memory.
};

Accelerator::Accelerator(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Accelerator::~Accelerator() { synchronize(); }

const Options& Accelerator::options() const { return impl_->options; }
const cost::GpuModel& Accelerator::gpu() const { return impl_->gpu; }
const cost::LinkModel& Accelerator::host_link() const { return impl_->host_link; }

Result<void*> Accelerator::allocate(Bytes size, QueueIndex first) {
  const Options& options = impl_->options;
  if (size.count() <= 0) {
    return Status(Code::invalid_argument,
                  options.name + ": asked " + std::to_string(size.count()) + " bytes");
  }
  const int64_t capacity = options.capacity.count();
  const int64_t rounded = size.count() > capacity ? size.count() : round_up(size).count();
  if (int64_t in_use = 0; !impl_->reserve(rounded, in_use)) {
    return Status(Code::out_of_memory, options.name + " is full: asked " + to_string(size) + " (" +
                                           std::to_string(size.count()) + " bytes), in use " +
                                           to_string(Bytes(in_use)) + " of " + to_string(options.capacity) +
                                           ", free " + to_string(Bytes(capacity - in_use)) +
                                           "; a larger sim node in INNKEEPER_NODES gives it more");
  }
  // Copies prefer the bytes that have been free longest, kernels those that they used last.
  const Arena::Order order = first == kCompute ? Arena::Order::newest : Arena::Order::oldest;
  Result<Arena::Piece> piece = impl_->memory.allocate(Bytes(rounded), order);
  if (!piece.ok()) {
    impl_->in_use.fetch_sub(rounded, std::memory_order_relaxed);
    return piece.status();
  }
  void* data = piece.value().data;
  WorkQueue& queue = impl_->queue(first);
  double since = 0;
  const Impl::Fence fence = impl_->take(data, Bytes(rounded), first, queue.time(), since);
  const bool waits = !fence.users.empty() && !(fence.in_order && first == kCompute);
  // The queue waits for the last users of the bytes. In virtual time other bytes that are free by then
  // suffice, as on a GPU that remaps pages.
  if (waits) {
    for (const auto& user : fence.users) impl_->order(queue, user);
  }
  queue.spend(0, since);
  if (first == kCompute && impl_->computing.load(std::memory_order_relaxed) > 0) {
    queue.forget_spoiled(data, static_cast<size_t>(rounded));
  }
  if (waits && first == kCompute) queue.advance();  // The requesting kernel is computing already.
  // A copy hides the bytes that it gets itself, once it may.
  const bool stale = piece.value().fresh || (first == kCompute && !fence.in_order);
  if (options.poison && stale) std::memset(data, kPoison, static_cast<size_t>(rounded));
  return data;
}

void Accelerator::free(void* data) {
  const NeedsHeap books;  // free() is called where no exception may be thrown.
  WorkQueue& compute = impl_->queue(kCompute);
  const bool poison = impl_->options.poison;
  if (poison || !compute.idle()) {
    const auto length = static_cast<size_t>(impl_->memory.size_of(data).count());
    compute.advance_past(data, length, poison);
    if (poison) compute.poison(data, length);
  }
  impl_->give_back(data, {.users = {compute.tail()}, .in_order = true});
}

void Accelerator::free_after(void* data, std::span<const Event> users) {
  const NeedsHeap books;
  Impl::Fence fence{.users = {}, .in_order = false};
  for (const Event& user : users) {
    if (auto simulated = std::dynamic_pointer_cast<SimEvent>(user)) {
      fence.users.push_back(std::move(simulated));
    } else if (user != nullptr) {
      [[maybe_unused]] const Status over = user->synchronize();
    }
  }
  impl_->give_back(data, std::move(fence));
}

void Accelerator::set_limit(Bytes limit) { impl_->set_limit(limit, time(kCompute)); }

Bytes Accelerator::live() const { return impl_->memory.live(); }
Bytes Accelerator::size_of(const void* data) const { return impl_->memory.size_of(data); }
bool Accelerator::contains(const void* data) const { return impl_->memory.contains(data); }
Bytes Accelerator::trim() { return impl_->side->trim() + impl_->memory.trim(); }

QueueIndex Accelerator::create_queue() { return impl_->create_queue(); }
Event Accelerator::record(QueueIndex queue) { return impl_->queue(queue).tail(); }
bool Accelerator::idle(QueueIndex queue) const { return impl_->queue(queue).idle(); }

void Accelerator::wait(QueueIndex queue, const Event& event) {
  if (event == nullptr) return;
  auto simulated = std::dynamic_pointer_cast<SimEvent>(event);
  if (simulated == nullptr) {
    [[maybe_unused]] const Status lost = event->synchronize();
    return;
  }
  WorkQueue& target = impl_->queue(queue);
  const bool at_once = impl_->at_once() && target.idle();
  if (simulated->passed() && target.idle()) return target.spend(0, simulated->time());
  const auto waited = target.push({.wait = std::move(simulated)}, 0);
  if (at_once) target.advance(waited->position());
}

void Accelerator::synchronize(QueueIndex queue) {
  [[maybe_unused]] const Status never_fails = impl_->queue(queue).tail()->synchronize();
}

void Accelerator::synchronize() {
  for (QueueIndex queue = 0; queue < impl_->queue_count(); ++queue) synchronize(queue);
}

Event Accelerator::copy(QueueIndex queue, void* destination, const void* source, size_t size,
                        Direction direction, HostMemory memory) {
  WorkQueue& target = impl_->queue(queue);
  if (size == 0) return target.tail();
  impl_->copied[static_cast<size_t>(direction)].fetch_add(static_cast<int64_t>(size),
                                                          std::memory_order_relaxed);
  const bool moves = impl_->options.data || !is_blank(destination);
  const Copy copy{destination, source, moves ? size : 0};
  const bool may_start = target.idle();  // No work precedes it: its destination has no other user.
  const bool at_once = impl_->at_once() && may_start;
  if (may_start && !at_once && impl_->options.poison && disjoint(copy))
    std::memset(destination, kPoison, size);
  auto event = target.push({.copy = copy}, impl_->seconds(size, direction, memory));
  if (at_once) target.advance(event->position());
  return event;
}

void Accelerator::publish(QueueIndex queue) { impl_->queue(queue).publish(); }

void Accelerator::begin_kernel(QueueIndex queue) {
  impl_->queue(queue).advance();
  if (impl_->options.host_seconds > 0) impl_->queue(queue).launch(impl_->options.host_seconds);
  impl_->computing.fetch_add(1, std::memory_order_relaxed);
}

void Accelerator::end_kernel(QueueIndex queue, std::span<const WrittenRange> written,
                             cost::KernelCost kernel) {
  impl_->computing.fetch_sub(1, std::memory_order_relaxed);
  WorkQueue& target = impl_->queue(queue);
  const double seconds = cost::kernel_seconds(impl_->gpu, kernel);
  if (written.empty() || !impl_->options.data) return target.spend(seconds);
  if (impl_->at_once() && target.idle()) return target.spend(seconds);
  std::vector<Hidden> results;
  for (const WrittenRange& range : merge(written))
    results.emplace_back(impl_->side, range, impl_->options.poison);
  if (results.empty()) return target.spend(seconds);
  target.push({.results = std::move(results)}, seconds);
}

double Accelerator::time(QueueIndex queue) const { return impl_->queue(queue).time(); }

double Accelerator::time() const {
  double latest = 0;
  for (QueueIndex queue = 0; queue < impl_->queue_count(); ++queue) latest = std::max(latest, time(queue));
  return latest;
}

double Accelerator::busy(QueueIndex queue) const { return impl_->queue(queue).busy(); }

double Accelerator::host_time() const {
  return impl_->options.host_seconds > 0 ? impl_->queue(kCompute).host_time() : 0;
}

Bytes Accelerator::copied(Direction direction) const {
  return Bytes(impl_->copied[static_cast<size_t>(direction)].load(std::memory_order_relaxed));
}

double time_of(const Event& event) {
  const auto* simulated = dynamic_cast<const SimEvent*>(event.get());
  return simulated == nullptr ? 0 : simulated->time();
}

}  // namespace innkeeper::sim
