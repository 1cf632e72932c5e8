// Interface of one node's memory for the engine: allocate, copy, and order copies after kernels.
//
// A device is the host, a disk, a simulated accelerator or a real one. The engine knows only this interface
// of it, so that tests can substitute faults, delays and whole machines (tests/). Each promise here is a
// check in tests/support/device_contract.h, which every device passes.
//
// Ordering. An accelerator has three queues. Work on one queue runs in order; between queues only a wait
// orders work. Memory from allocate() may still be in use by earlier work of the compute queue, or by its
// previous users (give_back). The queue for which it was requested comes after them. Destroying Memory is
// safe once the compute queue waits for every copy that touches it (I5, I6). The host and disks complete the
// work before they return, or return an event; `wait` on them blocks the caller.
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

// A point in a queue. Shared: every holder may query it or wait for it. A null Event is one that is long
// past. Neither method throws, whatever the device reports, because deleters call them.
class EventState {
 public:
  virtual ~EventState() = default;
  // False if unknown. True for good once a thread has waited, even in vain: the work is over then.
  virtual bool done() = 0;
  virtual Status synchronize() = 0;  // Blocks until done. Fails if the work before it failed.
};
using Event = std::shared_ptr<EventState>;

inline bool is_done(const Event& event) { return event == nullptr || event->done(); }

// Owns a piece of a node's memory and frees it when destroyed. Move-only.
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
  // Transfers the duty to release to the caller, which must call release()(context()) once.
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

// Keeps a node's budget. Every allocation on a node charges it first: the engine's for a replica, a kernel's
// for its result or its scratch memory. charge() may evict, and so may allocate and copy on other nodes.
class Accountant {
 public:
  virtual ~Accountant() = default;
  virtual Status charge(NodeId node, Bytes size) = 0;
  virtual void uncharge(NodeId node, Bytes size) noexcept = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // True: the device is gone for good, as a GPU that fell off its bus or whose context an illegal access
  // broke. Its contents cannot be read any more, and each call fails with loss().
  bool is_lost() const { return lost_->load(std::memory_order_acquire); }
  virtual Status loss() const { return {}; }

  virtual NodeKind kind() const = 0;
  virtual const std::string& name() const = 0;  // Name such as "sim:0", "cuda:1", "host" or "disk".

  // Called once, before any allocation. Without it no bytes are charged.
  virtual void attach(NodeId self, Accountant* accountant) = 0;

  // Requires: `size` > 0, else invalid_argument. Charges round_up(size) first (more, if pieces are
  // larger), and uncharges it when the Memory is released. The bytes are aligned to kAlignment and
  // undefined (the simulator poisons them). Work put on `first` from now on may use them; other queues
  // must be ordered after it.
  Result<Memory> allocate(Bytes size) { return allocate(size, Queue::compute); }
  virtual Result<Memory> allocate(Bytes size, Queue first) = 0;

  // Frees memory that only `users` may still touch, work of the compute queue among them. An accelerator
  // stores them with the memory, so that only its next owner waits for them; the host and disks wait now.
  virtual void give_back(Memory memory, std::span<const Event> users) {
    order_after(users);
    memory.reset();
  }
  // Makes the compute queue wait for `users`; if it cannot, the caller waits.
  void order_after(std::span<const Event> users) {
    for (const Event& user : users) {
      if (!wait(Queue::compute, user).ok()) (void)user->synchronize();
    }
  }

  // Sets the node's budget, the limit of the bytes in use at any moment. For clocks.
  virtual void set_limit(Bytes) {}

  // Bytes charged for memory that is alive now, counted from the allocator's own table and not from the
  // accountant's (I4: budgets are checked by a recount).
  virtual Bytes live() const = 0;

  virtual Result<Event> record(Queue queue) = 0;
  virtual Status wait(Queue queue, const Event& event) = 0;

  // Copies between this device and host memory, on queue copy_in or copy_out. `device` is memory of this
  // device. Both ends must stay until the returned event is done (I5).
  virtual Result<Event> copy_in(void* device, const void* host, Bytes size) = 0;
  virtual Result<Event> copy_out(void* host, const void* device, Bytes size) = 0;
  // Copies from another device of the same make, on this one's copy_in queue; fails for other peers.
  virtual bool can_copy_from(const Device& peer) const = 0;
  virtual Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) = 0;

  // Sets the function that a device with threads calls on one of them after work put on it is over. Null: no
  // listener; the former one is never called again once this returns. Must not be called from the listener.
  virtual void set_listener(std::function<void()>) {}
  // True: its copies end at any time without notice, so that a caller with further ones must query them.
  virtual bool works_unseen() const { return false; }
  // True: threads that the program does not know may call the device now. While the program captures a graph
  // on a GPU, such a call would end the capture.
  virtual bool may_be_helped() const { return true; }
  // Called once on such a thread, before it calls the device.
  virtual void begin_helping() {}

  // Returns cached free memory to the system. Returns the number of bytes.
  virtual Bytes trim() { return Bytes(0); }
  // Blocks until all work put on any queue so far is done.
  virtual Status synchronize() = 0;

 protected:
  // A device that may be lost keeps the flag; its events, which may outlive it, detect the loss first.
  explicit Device(const std::atomic<bool>* lost = &kNever) : lost_(lost) {}

 private:
  inline static constinit std::atomic<bool> kNever{false};
  const std::atomic<bool>* const lost_;
};

}  // namespace innkeeper
