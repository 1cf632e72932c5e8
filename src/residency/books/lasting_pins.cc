#include "residency/books/lasting_pins.h"

#include <algorithm>
#include <iterator>

#include "base/heap_reserve.h"

namespace innkeeper {

// ---------------------------------------------------------------- the user's

void LastingPins::pin(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  const Bytes size = replica.user_pins == 0 ? round_up(replica.memory.size()) : Bytes(0);
  ++replica.user_pins;
  if (id == table_.host()) pinned_to_host_.store(true, std::memory_order_relaxed);
  pinned_at_[&block].push_back({id, size});
  table_.node(id).pinned_by_user += size;
}

void LastingPins::unpin(Block& block) {
  {
    TableLock lock(table_);
    const auto found = pinned_at_.find(&block);
    if (found == pinned_at_.end()) return;
    const Pin pin = found->second.back();
    Replica& replica = block.replica(pin.node);
    VictimIndex& at = *table_.node(pin.node).index;
    table_.node(pin.node).pinned_by_user -= pin.size;
    found->second.pop_back();
    if (found->second.empty()) pinned_at_.erase(found);
    --replica.user_pins;
    replica.word.remove_pin(false);
    if (at.contains(block)) {  // The evictor queued the pinned replica behind the others: its turn is now.
      at.remove(block);
      at.add(block);
    }
  }
  table_.wake_waiters();
}

void LastingPins::forget_pins(const Block& block) {
  const auto found = pinned_at_.find(&block);
  if (found == pinned_at_.end()) return;
  for (const Pin& pin : found->second) table_.node(pin.node).pinned_by_user -= pin.size;
  pinned_at_.erase(found);
}

bool LastingPins::is_pinned(const Block& block) const {
  TableLock lock(table_);
  return pinned_at_.contains(&block);
}

Bytes LastingPins::unplanned_at(NodeId id) const {
  Bytes unknown(0);
  for (const auto& [block, pins] : pinned_at_) {
    if (!block->has_name() &&
        std::any_of(pins.begin(), pins.end(), [id](const Pin& pin) { return pin.node == id; }))
      unknown += round_up(block->size());
  }
  return unknown;
}

// ---------------------------------------------------------------- a thread's own work

void LastingPins::hold(Block& block, NodeId id, bool write) {
  holds_.push_back({&block, id, write, &thread_state()});
}

Access LastingPins::release_hold(Block& block, NodeId id) {
  TableLock lock(table_);
  const auto mine = [&](const Hold& hold) { return hold.block == &block && hold.node == id; };
  auto found = std::find_if(holds_.rbegin(), holds_.rend(),
                            [&](const Hold& hold) { return mine(hold) && hold.thread == &thread_state(); });
  // A context may be left by another thread than the one that entered it.
  if (found == holds_.rend()) found = std::find_if(holds_.rbegin(), holds_.rend(), mine);
  IK_CHECK(found != holds_.rend(), "release_hold without hold");
  const Access access{.block = &block, .write = found->write, .pinned = true};
  holds_.erase(std::next(found).base());
  return access;
}

bool LastingPins::held_by_me(const Block& block, NodeId id) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const Hold& hold) {
    return hold.block == &block && hold.node == id && hold.thread == &thread_state();
  });
}

// ---------------------------------------------------------------- escapes

void LastingPins::keep_escaped(NodeId id, Access& access) {
  if (!access.pinned) return;
  const NeedsHeap books;
  access.pinned = false;  // The pin belongs to the escape now.
  TableLock lock(table_);
  table_.leave_nursery(*access.block);
  Replica& replica = access.block->replica(id);
  if (replica.escapes != 0) {
    replica.word.remove_pin(access.write);  // One pin stands for all escapes of the replica.
    return;
  }
  if (access.write) {
    replica.word.end_write();
    access.block->count_write();
  }
  ++replica.escapes;
  escaped_.emplace_back(access.block, id);
}

bool LastingPins::poll_escapes() {
  if (escaped_.empty() || !probe_) return false;
  const size_t freed = std::erase_if(escaped_, [this](const auto& entry) {
    Replica& replica = entry.first->replica(entry.second);
    if (probe_(*entry.first, entry.second)) return false;
    --replica.escapes;
    table_.touched(replica);  // The holder may have launched kernels that have no stamp.
    entry.first->count_write();
    replica.word.remove_pin(false);
    return true;
  });
  return freed != 0;
}

void LastingPins::forget(const Block& block) {
  // Those whose memory was handed over, too.
  std::erase_if(escaped_, [&block](const auto& entry) { return entry.first == &block; });
  std::erase_if(holds_, [&block](const Hold& hold) { return hold.block == &block; });
  if (!pinned_at_.empty()) forget_pins(block);
}

// ---------------------------------------------------------------- reasons

Status LastingPins::why_pinned(const Block& block, const Node& at, const std::string& consequence) const {
  const Replica& replica = block.replica(at.id);
  const std::string at_node = " at " + at.device->name();
  const std::string where = at_node + consequence;
  const auto lasting = [](const std::string& line) { return Status(Code::invalid_argument, line); };
  if (held_by_me(block, at.id)) {
    return lasting("this thread works on the block itself" + where + "; leave innkeeper.resident() first");
  }
  if (replica.user_pins != 0) return lasting("the block is pinned" + where + "; unpin it first");
  if (replica.escapes != 0 && replica.word.pins() == replica.escapes) {
    return lasting("the block's real memory" + at_node +
                   " is still held by somebody whom an operator or resident() lent it" + consequence +
                   "; let go of it first");
  }
  return Status(Code::busy, "the block is in use" + where);
}

Status LastingPins::why_written(const Block& block, const Node& at) const {
  const std::string where = " at " + at.device->name();
  if (!held_by_me(block, at.id)) return Status(Code::busy, "the block is being written" + where);
  return Status(Code::invalid_argument, "this thread writes the block itself" + where +
                                            ", so it cannot be copied; leave innkeeper.resident() first");
}

}  // namespace innkeeper
