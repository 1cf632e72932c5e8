// What the engine needs of one node's memory: allocate, copy, and order copies after kernels.
//
// A device is the host, a disk, a simulated accelerator or a real one. The engine knows nothing else of it,
// so that faults, delays and whole machines can be put in its place (tests/). Each promise here is a check in
// tests/support/device_contract.h, which every device passes.
//
// Ordering. An accelerator has three queues. Work put on one queue happens in order; between queues nothing
// is ordered unless a wait says so. What allocate() returns may still be in use by work put on the compute
// queue earlier, or by who used it before (give_back): the queue that it was asked for comes after them.
// Destroying Memory is safe once the compute queue waits for every copy that touches it (I5, I6). The host
// and disks do their work before they return, or hand out an event; `wait` on them blocks the caller.
//
// Thread safety: every method may be called from any thread. No method calls back into the engine except
// through the Accountant, from inside allocate() and a Memory's release.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/types.h"

namespace innkeeper {

enum class NodeKind : uint8_t { accelerator, host, disk };
enum class Queue : uint8_t { compute = 0, copy_in = 1, copy_out = 2 };

// A point in a queue. Shared: every holder may ask or wait. A null Event is one that is long past.
// Neither throws, whatever the device says: deleters ask.
class EventState {
 public:
  virtual ~EventState() = default;
  // False if it cannot be known. True for good once a thread has waited, also in vain: the work is over then.
  virtual bool done() = 0;
  virtual Status synchronize() = 0;  // Blocks until done. Fails if the work before it failed.
};
using Event = std::shared_ptr<EventState>;

inline bool is_done(const Event& event) { return event == nullptr || event->done(); }

// Owns a piece of a node's memory; gives it back when destroyed. Move-only.
class Memory {
 public:
  using Release = void (*)(void* context);
  Memory() = default;
  Memory(void* data, Bytes size, void* context, Release release)
      : data_(data), size_(size), context_(context), release_(release) {}
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory(std::move(other)).swap(*this);
    return *this;
  }
  ~Memory() { reset(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  Bytes size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset() {
    if (release_ != nullptr) release_(context_);
    data_ = nullptr;
    context_ = nullptr;
    release_ = nullptr;
    size_ = Bytes(0);
  }
  bool is_released_by(Release release) const { return release_ == release; }
  // Hands the duty to release over to the caller: release()(context()) must be called once.
  struct Raw {
    void* data;
    void* context;
    Release release;
  };
  Raw take() {
    Raw raw{data_, context_, release_};
    data_ = context_ = nullptr;
    release_ = nullptr;
    size_ = Bytes(0);
    return raw;
  }
  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(context_, other.context_);
    std::swap(release_, other.release_);
  }

 private:
  void* data_ = nullptr;
  Bytes size_{0};
  void* context_ = nullptr;
  Release release_ = nullptr;
};

// Keeps a node's budget. Every allocator of a node asks it first: the engine for a
// replica, a kernel for its result or its scratch memory. charge() may evict, and so may allocate and copy
// elsewhere.
class Accountant {
 public:
  virtual ~Accountant() = default;
  virtual Status charge(NodeId node, Bytes size) = 0;
  virtual void uncharge(NodeId node, Bytes size) noexcept = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Gone for good: a card that fell off its bus, or whose context an illegal access broke. What it holds
  // cannot be read any more, and each call fails with loss().
  bool is_lost() const { return lost_->load(std::memory_order_acquire); }
  virtual Status loss() const { return {}; }

  virtual NodeKind kind() const = 0;
  virtual const std::string& name() const = 0;  // "sim:0", "cuda:1", "host", "disk"

  // Called once, before any allocation. Without it nothing is charged.
  virtual void attach(NodeId self, Accountant* accountant) = 0;

  // `size` > 0, else invalid_argument. Charges round_up(size) first (more, where pieces are larger), and
  // gives it back when the Memory is released. The bytes are aligned to kAlignment. What they are is
  // undefined (and poison, of the simulator). Work put on `first` from now on may use them; other queues must
  // be ordered after it.
  Result<Memory> allocate(Bytes size) { return allocate(size, Queue::compute); }
  virtual Result<Memory> allocate(Bytes size, Queue first) = 0;

  // Gives memory back that only `users` may still touch, work of the compute queue among them. An accelerator
  // keeps them with the memory, so that only who is given it waits for them; the host and disks wait now.
  virtual void give_back(Memory memory, std::span<const Event> users) {
    order_after(users);
    memory.reset();
  }
  // Has the compute queue wait for `users`; where it cannot, the caller waits.
  void order_after(std::span<const Event> users) {
    for (const Event& user : users) {
      if (!wait(Queue::compute, user).ok()) (void)user->synchronize();
    }
  }

  // The node's budget: no more is ever in use at once. For clocks.
  virtual void set_limit(Bytes) {}

  // Bytes charged for memory that is alive now, counted from the allocator's own table and not from the
  // accountant's (I4: budgets are checked by a recount).
  virtual Bytes live() const = 0;

  virtual Result<Event> record(Queue queue) = 0;
  virtual Status wait(Queue queue, const Event& event) = 0;

  // Copies between this device and host memory, on queue copy_in or copy_out. `device` memory is this
  // device's. Both ends must stay until the returned event is done (I5).
  virtual Result<Event> copy_in(void* device, const void* host, Bytes size) = 0;
  virtual Result<Event> copy_out(void* host, const void* device, Bytes size) = 0;
  // Copies from another device of the same make, on this one's copy_in queue; of any other it is refused.
  virtual bool can_copy_from(const Device& peer) const = 0;
  virtual Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) = 0;

  // Called, on a thread of the device's own, after work that was put on it is over, where the device has
  // threads. Null: there is no listener, from when this returns. Must not be called from there.
  virtual void set_listener(std::function<void()>) {}
  // Whether its copies are done at times of their own, without notice: a caller that has more of them
  // asks.
  virtual bool works_unseen() const { return false; }
  // Whether threads that the program knows nothing of may call it now. While the program captures a graph on
  // a card, such a call would end the capture.
  virtual bool may_be_helped() const { return true; }
  // Called once on such a thread, before it calls the device.
  virtual void begin_helping() {}

  // Gives memory that is cached but free back to the system. Returns how much.
  virtual Bytes trim() { return Bytes(0); }
  // Blocks until all work put on any queue so far is done.
  virtual Status synchronize() = 0;

 protected:
  // A device that may be lost keeps the flag; its events, which may outlive it, find out first.
  explicit Device(const std::atomic<bool>* lost = &kNever) : lost_(lost) {}

 private:
  inline static constinit std::atomic<bool> kNever{false};
  const std::atomic<bool>* const lost_;
};

}  // namespace innkeeper
