#include "residency/movement/transfers.h"

#include <functional>
#include <string>

#include "base/log.h"

namespace innkeeper {

// I5: the copy reads the source after its last writer.
Status Transfers::order_after_writes(Device& runner, Queue queue, const Block& block, NodeId from) const {
  const Replica& source = block.replica(from);
  if (const auto& stamps = table_.node(from).stamps) {
    const Stamp written = source.escapes != 0 ? kAllSoFar : source.last_write.load(std::memory_order_relaxed);
    Result<Event> passed = stamps->after(written);
    if (!passed.ok()) return passed.status();
    IK_RETURN_IF_ERROR(runner.wait(queue, passed.value()));
  }
  const Event into = source.copies.into();
  return into == nullptr ? Status() : runner.wait(queue, into);
}

Result<Event> Transfers::queue_copy(const Move& move, Bytes size, bool follows) {
  const Block& block = *move.block;
  Device& target = table_.device(move.to);
  Device& origin = table_.device(move.from);
  const auto at = [&](void* data) -> void* { return static_cast<std::byte*>(data) + move.begun.count(); };
  void* const memory = at(block.replica(move.to).memory.data());
  void* const source = at(block.replica(move.from).memory.data());
  const auto order = [&](Device& runner, Queue queue) -> Status {
    if (follows) return {};
    IK_RETURN_IF_ERROR(order_after_writes(runner, queue, block, move.from));
    return move.last == nullptr ? Status() : runner.wait(queue, move.last);
  };
  const NodeKind target_kind = target.kind();
  const NodeKind origin_kind = origin.kind();
  Result<Event> copied = Event();
  if (target_kind == NodeKind::accelerator && origin_kind == NodeKind::accelerator) {
    IK_RETURN_IF_ERROR(order(target, Queue::copy_in));
    copied = target.copy_peer(memory, origin, source, size);
  } else if (origin_kind == NodeKind::host) {
    IK_RETURN_IF_ERROR(order(target, Queue::copy_in));
    copied = target.copy_in(memory, source, size);
  } else {
    IK_CHECK(target_kind == NodeKind::host, "a copy has the host at one end");
    IK_RETURN_IF_ERROR(order(origin, Queue::copy_out));
    copied = origin.copy_out(memory, source, size);
  }
  if (!copied.ok()) return copied;
  bytes_copied(copy_kind(origin_kind, target_kind)).fetch_add(size.count(), std::memory_order_relaxed);
  if (origin_kind == NodeKind::disk) bytes_from_disk_.fetch_add(size.count(), std::memory_order_relaxed);
  if (target_kind == NodeKind::disk) bytes_to_disk_.fetch_add(size.count(), std::memory_order_relaxed);
  return copied;
}

std::atomic<int64_t>& Transfers::bytes_copied(CopyKind kind) {
  if (kind == CopyKind::between) return bytes_between_;
  return kind == CopyKind::fetch ? bytes_fetched_ : bytes_written_back_;
}

Result<Event> Transfers::copy(const Move& move, Bytes size, bool follows) {
  if (!watch_) return queue_copy(move, size, follows);
  Result<Event> copied = Event();
  const auto copy = [&] { copied = queue_copy(move, size, follows); };
  watch_(table_.device(move.from), table_.device(move.to), size,
         std::cref(copy));  // A reference: no allocation for each copy.
  return copied;
}

void Transfers::log_move(const char* verb, const Block& block, NodeId from, NodeId to) const {
  if (!log_enabled(LogLevel::info)) return;
  log(LogLevel::info, std::string(verb) + " block " + std::to_string(static_cast<uint64_t>(block.id())) +
                          " (" + to_string(block.size()) + ") from " + table_.device(from).name() + " to " +
                          table_.device(to).name());
}

void Transfers::count_into(Stats& stats) const {
  stats.bytes_fetched = bytes_fetched_.load();
  stats.bytes_written_back = bytes_written_back_.load();
  stats.bytes_between = bytes_between_.load();
  stats.bytes_from_disk = bytes_from_disk_.load();
  stats.bytes_to_disk = bytes_to_disk_.load();
}

void Transfers::reset_counts() {
  for (auto* counter :
       {&bytes_fetched_, &bytes_written_back_, &bytes_between_, &bytes_from_disk_, &bytes_to_disk_})
    counter->store(0);
}

}  // namespace innkeeper
