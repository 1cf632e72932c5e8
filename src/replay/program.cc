#include "replay/program.h"

#include <algorithm>
#include <unordered_map>

#include "replay/player.h"

namespace innkeeper::replay {
namespace {

using trace::AccessKind;
using trace::AccessRecord;
using trace::RecordedAccess;
using trace::RecordEntry;

class Reader {
 public:
  Reader(const AccessRecord& record, const cost::GpuModel& gpu) : record_(record), gpu_(gpu) {}

  RecordedProgram read(size_t steps) {
    const std::vector<size_t> ends = step_ends(record_);
    const size_t first = ends.size() > steps ? ends[ends.size() - 1 - steps] : 0;
    for (size_t i = 0; !ends.empty() && i < ends.back(); ++i) take(record_.entries[i], i >= first);
    drop_what_is_over();
    for (Parts& step : program_.steps) step.optimizer = optimizer_of(step);
    for (Tensor& tensor : program_.tensors) assign_lasting(tensor);
    for (size_t i = 0; i < program_.steps.size(); ++i) assign_made(static_cast<int64_t>(i));
    return std::move(program_);
  }

 private:
  void take(const RecordEntry& entry, bool counts) {
    if (entry.kind == RecordEntry::Kind::operation) {
      for (const RecordedAccess& access : record_.of(entry)) touch(access, counts);
      if (counts) program_.kernels.push_back(seconds_of(record_, entry, gpu_));
    } else if (entry.kind == RecordEntry::Kind::freed) {
      const auto found = names_.find(entry.block);
      if (found == names_.end()) return;
      Tensor& tensor = program_.tensors[found->second];
      tensor.lasts = false;
      tensor.died = now() - 1;
      names_.erase(found);
    } else if (counts && ends_step(entry)) {
      const int64_t begin = program_.steps.empty() ? 0 : program_.steps.back().end;
      program_.steps.push_back({.begin = begin, .turn = begin, .optimizer = now(), .end = now()});
    }
  }

  void touch(const RecordedAccess& access, bool counts) {
    const auto [found, is_new] = names_.try_emplace(access.block, program_.tensors.size());
    if (is_new) {
      program_.tensors.push_back({.lasts = !counts,
                                  .step = static_cast<int64_t>(program_.steps.size()),
                                  .born = now(),
                                  .died = kAlive});
    }
    Tensor& tensor = program_.tensors[found->second];
    tensor.bytes = std::max(tensor.bytes, round_up(access.size).count());
    if (!counts) return;
    const bool write = access.kind != AccessKind::read;
    if (tensor.uses.empty() || tensor.uses.back().at != now()) {
      tensor.uses.push_back({now(), write});
    } else {
      tensor.uses.back().write |= write;
    }
  }

  int64_t now() const { return static_cast<int64_t>(program_.kernels.size()); }

  // Removes tensors that were freed before the first step, or in it without a use: they belong to
  // the step before.
  void drop_what_is_over() {
    std::erase_if(program_.tensors,
                  [](const Tensor& tensor) { return tensor.died != kAlive && tensor.uses.empty(); });
    for (Tensor& tensor : program_.tensors) tensor.died = std::min(tensor.died, now() - 1);
  }

  int64_t optimizer_of(const Parts& step) const {
    int64_t first = step.end;
    for (const Tensor& tensor : program_.tensors) {
      if (!tensor.lasts) continue;
      bool read = false;
      for (const TensorUse& use : tensor.uses) {
        if (use.at < step.begin || use.at >= first) continue;
        if (use.write && read) first = use.at;
        read |= !use.write;
      }
    }
    return first;
  }

  void assign_lasting(Tensor& tensor) const {
    if (!tensor.lasts || program_.steps.empty()) return;
    const Parts& last = program_.steps.back();
    bool before = false, within = false, written = false;
    for (const TensorUse& use : tensor.uses) {
      before |= use.at >= last.begin && use.at < last.optimizer;
      within |= use.at >= last.optimizer;
      written |= use.at >= last.optimizer && use.write;
    }
    tensor.role = !within ? Role::parameter : !before ? Role::state : Role::parameter;
    // A lasting gradient is filled with zeros and not freed.
    if (before && within && !written) tensor.role = Role::gradient;
    tensor.trained = tensor.role == Role::parameter && written;
  }

  void assign_made(int64_t number) {
    Parts& step = program_.steps[index(number)];
    std::vector<int64_t> change(index(step.end - step.begin) + 1);
    std::vector<Tensor*> made;
    for (Tensor& tensor : program_.tensors) {
      if (tensor.lasts || tensor.step != number || tensor.uses.empty() || tensor.born >= step.optimizer)
        continue;
      if (std::any_of(tensor.uses.begin(), tensor.uses.end(),
                      [&](const TensorUse& use) { return use.at >= step.optimizer && use.at < step.end; })) {
        tensor.role = Role::gradient;
        continue;
      }
      made.push_back(&tensor);
      change[index(tensor.born - step.begin)] += tensor.bytes;
      change[index(std::min(tensor.died + 1, step.end) - step.begin)] -= tensor.bytes;
    }
    int64_t alive = 0, most = 0;
    for (int64_t at = step.begin; at < step.optimizer; ++at) {
      alive += change[index(at - step.begin)];
      if (alive <= most) continue;
      most = alive;
      step.turn = at;
    }
    for (Tensor* tensor : made)
      if (tensor->born <= step.turn && tensor->uses.back().at > step.turn) tensor->role = Role::saved;
  }

  static constexpr int64_t kAlive = INT64_MAX;

  const AccessRecord& record_;
  const cost::GpuModel& gpu_;
  std::unordered_map<BlockId, size_t> names_;
  RecordedProgram program_;
};

}  // namespace

RecordedProgram last_steps(const AccessRecord& record, const cost::GpuModel& gpu, size_t steps) {
  return Reader(record, gpu).read(steps);
}

}  // namespace innkeeper::replay
