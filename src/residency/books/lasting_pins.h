// Pins that outlast an operator: of the user (pin), of a thread that works on the bytes itself (hold), and of
// real memory that is held outside of the engine (escapes, I12).
//
// Thread safety: as annotated.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "residency/block/access.h"
#include "residency/block/block_table.h"

namespace innkeeper {

class LastingPins {
 public:
  // `table` must outlive the pins.
  explicit LastingPins(BlockTable& table) : table_(table) {}

  // ---- the user's
  // Keeps a pin that the caller has taken at the node as the user's.
  void pin(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  void unpin(Block& block) IK_EXCLUDES(engine_mutex);  // Releases the last pin, if there is one.
  bool is_pinned(const Block& block) const IK_EXCLUDES(engine_mutex);
  // Whether the user ever pinned a block to the host. One relaxed load.
  bool any_at_host() const { return pinned_to_host_.load(std::memory_order_relaxed); }
  // Bytes that the user pinned at the node of blocks that no planner knows.
  Bytes unplanned_at(NodeId id) const IK_REQUIRES(engine_mutex);

  // ---- a thread's own work
  void hold(Block& block, NodeId id, bool write) IK_REQUIRES(engine_mutex);
  // The access of the thread's last hold() of the block at the node.
  Access release_hold(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);

  // ---- escapes
  void set_probe(EscapeProbe probe) { probe_ = std::move(probe); }
  // Keeps the pin of an access because the real memory is held outside; poll_escapes() releases it.
  void keep_escaped(NodeId id, Access& access) IK_EXCLUDES(engine_mutex);
  // Releases the pins of memory that is held outside no longer. Returns whether there was any.
  bool poll_escapes() IK_REQUIRES(engine_mutex);
  size_t escapes() const IK_REQUIRES(engine_mutex) { return escaped_.size(); }

  void forget(const Block& block) IK_REQUIRES(engine_mutex);  // The block ends.

  // Why a pinned replica cannot leave. Code::invalid_argument where waiting does not help, since its pins
  // last until the program releases them; else Code::busy. `consequence` continues the message.
  Status why_pinned(const Block& block, const Node& at, const std::string& consequence) const
      IK_REQUIRES(engine_mutex);
  // Why a replica that is being written cannot be copied.
  Status why_written(const Block& block, const Node& at) const IK_REQUIRES(engine_mutex);

 private:
  struct Hold {
    const Block* block;
    NodeId node;
    bool write;
    const void* thread;  // ThreadState of the holder.
  };
  struct Pin {
    NodeId node;
    Bytes size;  // Bytes of the replica; 0 if another pin accounts for them.
  };
  // Whether this thread works on the replica itself: then to wait for its pin is to wait for itself.
  bool held_by_me(const Block& block, NodeId id) const IK_REQUIRES(engine_mutex);
  void forget_pins(const Block& block) IK_REQUIRES(engine_mutex);

  BlockTable& table_;
  EscapeProbe probe_;
  std::atomic<bool> pinned_to_host_ = false;
  std::unordered_map<const Block*, std::vector<Pin>> pinned_at_ IK_GUARDED_BY(engine_mutex);  // Oldest first.
  std::vector<Hold> holds_ IK_GUARDED_BY(engine_mutex);
  std::vector<std::pair<Block*, NodeId>> escaped_ IK_GUARDED_BY(engine_mutex);
};

}  // namespace innkeeper
