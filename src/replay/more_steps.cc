#include "replay/more_steps.h"

#include <algorithm>
#include <span>
#include <unordered_map>

namespace innkeeper::replay {
namespace {

using trace::AccessRecord;
using trace::RecordedAccess;
using trace::RecordEntry;

struct Birth {
  int step = 0;  // Step of the birth: 1, the one before last; 2, the last; 0, an earlier one.
  size_t ordinal = 0;
};

// The blocks of the last two steps, by the place of their birth.
class LastSteps {
 public:
  explicit LastSteps(const AccessRecord& record) : record_(record) {}

  Status read() {
    const std::vector<size_t> ends = step_ends(record_);
    for (const RecordEntry& entry : record_.entries) {
      if (entry.kind == RecordEntry::Kind::mark && entry.text.starts_with("dropped "))
        return Status(Code::invalid_argument, "the record is not whole: " + entry.text + " lines");
    }
    if (ends.size() < 3)
      return Status(Code::invalid_argument, "the record has " + std::to_string(ends.size()) +
                                                " steps (marks \"step\"); three are needed to know the next");
    earlier_ = ends[ends.size() - 3];
    last_ = ends[ends.size() - 2];
    end_ = ends.back();
    for (size_t i = 0; i < end_; ++i) {
      const int step = i < earlier_ ? 0 : i < last_ ? 1 : 2;
      for (const RecordedAccess& access : record_.of(record_.entries[i])) {
        std::vector<BlockId>& born = born_[step];
        if (births_.try_emplace(access.block, Birth{step, born.size()}).second) born.push_back(access.block);
      }
    }
    const auto is_operation = [](const RecordEntry& entry) {
      return entry.kind == RecordEntry::Kind::operation;
    };
    const auto last = std::span(record_.entries).subspan(last_, end_ - last_);
    if (std::none_of(last.begin(), last.end(), is_operation))
      return Status(Code::invalid_argument, "no operator is in the record's last step");
    return compare();
  }

  // Returns the id that the counterpart of the last step's `block` has `steps` steps later.
  BlockId later(BlockId block, int64_t steps) const {
    const auto found = births_.find(block);
    if (found == births_.end() || found->second.step == 0) return block;
    const int64_t step = steps + found->second.step;
    if (step <= 2) return born_[step][found->second.ordinal];
    const auto births = static_cast<int64_t>(born_[2].size());
    return BlockId{kFirst + static_cast<uint64_t>((step - 3) * births) + found->second.ordinal};
  }

  size_t begin() const { return last_; }
  size_t end() const { return end_; }

 private:
  static constexpr uint64_t kFirst = uint64_t{1} << 48;  // First id beyond all recorded blocks.

  Status compare() const {
    const auto differ = [&](size_t at) {
      return Status(Code::invalid_argument, "the record's last two steps differ: at entry " +
                                                std::to_string(at) + " of " + std::to_string(end_ - last_));
    };
    if (last_ - earlier_ != end_ - last_ || born_[1].size() != born_[2].size())
      return differ(std::min(last_ - earlier_, end_ - last_));
    for (size_t i = 0; i < end_ - last_; ++i) {
      const RecordEntry& before = record_.entries[earlier_ + i];
      const RecordEntry& now = record_.entries[last_ + i];
      if (before.kind != now.kind || before.text != now.text || before.count != now.count) return differ(i);
      for (size_t k = 0; k < now.count; ++k) {
        const RecordedAccess& was = record_.of(before)[k];
        const RecordedAccess& is = record_.of(now)[k];
        if (was.size != is.size || was.kind != is.kind || !follows(is.block, was.block)) return differ(i);
      }
      if (now.kind == RecordEntry::Kind::freed && !follows(now.block, before.block)) return differ(i);
    }
    return {};
  }

  bool follows(BlockId now, BlockId before) const {
    const auto found = births_.find(now);
    if (found == births_.end()) return !births_.contains(before);  // The block was freed and never touched.
    if (found->second.step == 0) return now == before;
    if (found->second.step == 2) return born_[1][found->second.ordinal] == before;
    const auto earlier = births_.find(before);  // The block is one more step back, where the names end.
    return earlier == births_.end() || earlier->second.step == 0;
  }

  const AccessRecord& record_;
  size_t earlier_ = 0, last_ = 0, end_ = 0;
  std::unordered_map<BlockId, Birth> births_;
  std::vector<BlockId> born_[3];
};

}  // namespace

Result<AccessRecord> with_more_steps(const AccessRecord& record, int64_t more) {
  LastSteps steps(record);
  IK_RETURN_IF_ERROR(steps.read());
  AccessRecord all;
  all.entries.assign(record.entries.begin(),
                     record.entries.begin() + static_cast<std::ptrdiff_t>(steps.end()));
  all.accesses = record.accesses;
  for (int64_t step = 1; step <= more; ++step) {
    for (size_t i = steps.begin(); i < steps.end(); ++i) {
      RecordEntry entry = record.entries[i];
      entry.block = steps.later(entry.block, step);
      entry.first = all.accesses.size();
      for (RecordedAccess access : record.of(record.entries[i])) {
        access.block = steps.later(access.block, step);
        all.accesses.push_back(access);
      }
      all.entries.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace innkeeper::replay
