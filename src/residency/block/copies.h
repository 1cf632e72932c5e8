// The copies that touch a replica's memory and may not be done: one into it, and those out of it. And, while
// the replica is arriving, the move that brings it.
//
// Nearly always there are none, so the object is one null pointer. Guarded as its replica is (block.h).
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/device_api.h"
#include "residency/block/move.h"

namespace innkeeper {

class Copies {
 public:
  bool none() const { return all_ == nullptr; }
  // The copy that fills the memory, until the compute queue is ordered after it; null if there is none.
  Event into() const { return all_ == nullptr ? Event() : all_->into; }
  std::span<const Event> out() const {
    return all_ == nullptr ? std::span<const Event>() : std::span<const Event>(all_->out);
  }
  void set_into(Event copy) {
    if (copy == nullptr) return clear_into();
    all().into = std::move(copy);
  }
  void clear_into() {
    if (all_ != nullptr) all_->into = nullptr;
    keep_if_any();
  }
  // Null while none is under way; never one that is over.
  Move* move() const { return all_ == nullptr ? nullptr : all_->move.get(); }
  MovePtr shared_move() const { return all_ == nullptr ? nullptr : all_->move; }
  void set_move(MovePtr move) { all().move = std::move(move); }
  void clear_move() {
    if (all_ != nullptr) all_->move = nullptr;
    keep_if_any();
  }
  // A null copy is done already.
  void add_out(const Event& copy) {
    forget_done();
    if (copy != nullptr) all().out.push_back(copy);
  }
  // Forgets copies out of the replica that are done.
  void forget_done() {
    if (all_ == nullptr) return;
    std::erase_if(all_->out, [](const Event& event) { return is_done(event); });
    keep_if_any();
  }
  void clear() { all_ = nullptr; }
  // Removes and returns every copy; the move is forgotten.
  std::vector<Event> take() {
    const std::unique_ptr<All> all = std::move(all_);
    if (all == nullptr) return {};
    if (all->into != nullptr) all->out.push_back(std::move(all->into));
    return std::move(all->out);
  }

 private:
  struct All {
    MovePtr move;
    Event into;
    std::vector<Event> out;
  };
  All& all() {
    if (all_ == nullptr) all_ = std::make_unique<All>();
    return *all_;
  }
  void keep_if_any() {
    if (all_ != nullptr && all_->move == nullptr && all_->into == nullptr && all_->out.empty())
      all_ = nullptr;
  }

  std::unique_ptr<All> all_;
};

}  // namespace innkeeper
