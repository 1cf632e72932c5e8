#include "replay/offline.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace innkeeper::replay {
namespace {

using trace::AccessKind;
using trace::AccessRecord;
using trace::RecordedAccess;
using trace::RecordEntry;

constexpr int64_t kNever = INT64_MAX;

struct Item {
  int64_t size = 0;
  bool born = false;
  bool resident = false;
  bool dirty = false;
  int64_t rank = 0;  // Position in the line; the first leaves first.
  std::vector<int64_t> uses;
  size_t next = 0;  // Index of the next of `uses`.
};

class Pager {
 public:
  Pager(const AccessRecord& record, Bytes space, Leaves rule)
      : record_(record), free_(space.count()), rule_(rule) {
    for (size_t i = 0; i < record.entries.size(); ++i) {
      for (const RecordedAccess& access : record.of(record.entries[i])) {
        Item& item = items_[access.block];
        item.size = std::max(item.size, round_up(access.size).count());
        if (item.uses.empty() || item.uses.back() != static_cast<int64_t>(i))
          item.uses.push_back(static_cast<int64_t>(i));
      }
    }
  }

  Result<std::vector<Traffic>> run() {
    for (size_t i = 0; i < record_.entries.size(); ++i) {
      const RecordEntry& entry = record_.entries[i];
      if (entry.kind == RecordEntry::Kind::operation) {
        IK_RETURN_IF_ERROR(use(entry, static_cast<int64_t>(i)));
      } else if (entry.kind == RecordEntry::Kind::freed) {
        drop(entry.block, items_[entry.block]);
      } else if (ends_step(entry)) {
        steps_.push_back(step_);
        step_ = {};
      }
    }
    return std::move(steps_);
  }

 private:
  Status use(const RecordEntry& entry, int64_t at) {
    int64_t needed = 0;
    for (const RecordedAccess& access : record_.of(entry)) {
      Item& item = items_[access.block];
      line_.erase({item.rank, access.block});  // A block in use does not leave.
      if (!item.resident) needed += item.size;
      if (!item.resident && item.born) {
        step_.in += Bytes(item.size);
        ++step_.copies;
      }
      item.dirty |= !item.born || access.kind != AccessKind::read;
      item.resident = item.born = true;
    }
    while (free_ < needed && !line_.empty()) {
      const BlockId leaving = line_.begin()->second;
      Item& victim = items_[leaving];
      if (victim.dirty) {
        step_.out += Bytes(victim.size);
        ++step_.copies;
      }
      drop(leaving, victim);
    }
    if (free_ < needed)
      return Status(Code::out_of_memory,
                    entry.text + " needs " + to_string(Bytes(needed - free_)) + " more than there is room");
    free_ -= needed;
    for (const RecordedAccess& access : record_.of(entry)) {
      Item& item = items_[access.block];
      while (item.next < item.uses.size() && item.uses[item.next] <= at) ++item.next;
      const int64_t next = item.next < item.uses.size() ? item.uses[item.next] : kNever;
      item.rank = rule_ == Leaves::farthest_next_use ? -next : at;
      line_.insert({item.rank, access.block});
    }
    return {};
  }

  void drop(BlockId block, Item& item) {
    line_.erase({item.rank, block});
    if (item.resident) free_ += item.size;
    item.resident = item.dirty = false;
  }

  const AccessRecord& record_;
  int64_t free_;
  const Leaves rule_;
  std::unordered_map<BlockId, Item> items_;
  std::set<std::pair<int64_t, BlockId>> line_;
  Traffic step_;
  std::vector<Traffic> steps_;
};

}  // namespace

Result<std::vector<Traffic>> traffic(const AccessRecord& record, Bytes space, Leaves rule) {
  return Pager(record, space, rule).run();
}

Bytes most_alive(const AccessRecord& record) {
  std::unordered_map<BlockId, int64_t> sizes;
  int64_t alive = 0;
  int64_t most = 0;
  for (const RecordEntry& entry : record.entries) {
    for (const RecordedAccess& access : record.of(entry)) {
      int64_t& size = sizes[access.block];
      const int64_t now = std::max(size, round_up(access.size).count());
      alive += now - size;
      size = now;
    }
    most = std::max(most, alive);
    if (entry.kind != RecordEntry::Kind::freed) continue;
    const auto found = sizes.find(entry.block);
    if (found == sizes.end()) continue;
    alive -= found->second;
    sizes.erase(found);
  }
  return Bytes(most);
}

}  // namespace innkeeper::replay
