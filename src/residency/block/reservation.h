// A reservation: bytes of a node's budget that are charged before there is memory for them
// (docs/design/moves.md).
//
// Evictor::reserve() makes one. While it is armed, allocations of the thread at the node take their bytes
// from the reservation first, in any allocator's charge. The rest goes back to the budget with the
// reservation.
//
// Thread safety: none; one thread has a reservation at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/types.h"

namespace innkeeper {

// How far a request for memory may go. `may_evict` frees memory by moves, but never waits for another
// thread's operator: it fails with Code::busy, and the caller tries again. `may_wait` waits for operators
// too: for a kernel in the middle of its work, which cannot run twice (I9).
enum class Reserve : uint8_t { free_only, may_evict, may_wait };

// A node's reservations: bytes that are charged and not allocated.
class Promises {
 public:
  Bytes total() const { return Bytes(total_.load(std::memory_order_acquire)); }
  void add(Bytes size) { total_.fetch_add(size.count(), std::memory_order_acq_rel); }
  void remove(Bytes size) { total_.fetch_sub(size.count(), std::memory_order_acq_rel); }

 private:
  std::atomic<int64_t> total_{0};
};

class Reservation {
 public:
  Reservation() = default;
  // Requires: the caller has charged `size` bytes to `used`, the node's counter.
  Reservation(NodeId node, Bytes size, Reserve mode, std::atomic<int64_t>& used, Promises& promises)
      : node_(node), mode_(mode), left_(size), used_(&used), promises_(&promises) {
    promises.add(size);
  }
  Reservation(Reservation&& other) noexcept { swap(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    Reservation(std::move(other)).swap(*this);
    return *this;
  }
  ~Reservation() { give_back(); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  NodeId node() const { return node_; }
  Reserve mode() const { return mode_; }
  Bytes left() const { return left_; }

  // Takes up to `size` bytes, which become the caller's charge. Returns how many.
  Bytes take(Bytes size) {
    const Bytes taken = size < left_ ? size : left_;
    left_ -= taken;
    if (taken != Bytes(0)) promises_->remove(taken);
    return taken;
  }
  // Uncharges the rest.
  void give_back() {
    if (left_ == Bytes(0)) return;
    promises_->remove(left_);
    used_->fetch_sub(left_.count(), std::memory_order_acq_rel);
    left_ = Bytes(0);
  }

 private:
  void swap(Reservation& other) noexcept {
    std::swap(node_, other.node_);
    std::swap(mode_, other.mode_);
    std::swap(left_, other.left_);
    std::swap(used_, other.used_);
    std::swap(promises_, other.promises_);
  }

  NodeId node_ = kNoNode;
  Reserve mode_ = Reserve::free_only;
  Bytes left_{0};
  std::atomic<int64_t>* used_ = nullptr;
  Promises* promises_ = nullptr;
};

// Arms a reservation for a scope: the thread's allocations at its node take from it. Scopes nest; the inner
// one counts.
class ArmedReservation {
 public:
  explicit ArmedReservation(Reservation& reservation)
      : reservation_(reservation), before_(std::exchange(current_, this)) {}
  ~ArmedReservation() { current_ = before_; }
  ArmedReservation(const ArmedReservation&) = delete;
  ArmedReservation& operator=(const ArmedReservation&) = delete;

  // The thread's innermost one, or null.
  static ArmedReservation* current() { return current_; }
  Reservation& reservation() { return reservation_; }

  // Notes that an allocator needed more than is reserved while other operators hold the rest of the budget:
  // PyTorch may lose the code of the allocator's failure.
  void refuse() { refused_ = true; }
  bool refused() const { return refused_; }

 private:
  inline static constinit thread_local ArmedReservation* current_ = nullptr;
  Reservation& reservation_;
  ArmedReservation* const before_;
  bool refused_ = false;
};

}  // namespace innkeeper
