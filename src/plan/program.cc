#include "plan/program.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

namespace innkeeper::plan {
namespace {

// Bytes that kernels could have touched while one of them is launched.
constexpr double kLaunch = 8 << 20;

// An operator for which the host takes so many times longer than for the middle one has waited; one with many
// operands takes longer by itself.
constexpr float kWaited = 4;
constexpr float kOperands = 4;

// The host's own pace is the least that it took for operators like this one: at times it waits, since the
// node has enough to do, or for data. A better schedule ends the first, and the second is no pace.
void take_least_host_time(Program& program) {
  std::unordered_map<uint64_t, float> least;
  for (const Program::Step& step : program.steps) {
    const auto [known, is_new] = least.try_emplace(step.shape, step.host);
    if (!is_new) known->second = std::min(known->second, step.host);
  }
  std::vector<float> times;
  for (Program::Step& step : program.steps) times.push_back(step.host = least[step.shape]);
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  for (int64_t i = 0; i < program.length(); ++i) {
    float& host = program.steps[static_cast<size_t>(i)].host;
    const float operands = std::max(1.0F, static_cast<float>(program.uses_of(i).size()) / kOperands);
    host = std::min(host, kWaited * operands * *middle);
  }
}

}  // namespace

int64_t Slot::age(int64_t births) const {
  if (lasting || births == 0) return 0;
  const int64_t since = number - 1;  // Index among this period's births; below 0: of an earlier period.
  return -((since >= 0 ? since : since - births + 1) / births);
}

std::span<const Program::Use> Program::uses_of(int64_t step) const {
  const auto index = static_cast<size_t>(step);
  const size_t last = index + 1 < steps.size() ? steps[index + 1].first : uses.size();
  return std::span(uses).subspan(steps[index].first, last - steps[index].first);
}

double Program::bytes_of(int64_t step) const {
  double bytes = 0;
  for (const Use& use : uses_of(step)) bytes += static_cast<double>(use.size.count());
  return bytes;
}

double Program::touched_in(int64_t step, NodeId node, const Speed& speed) const {
  const Step& it = steps[static_cast<size_t>(step)];
  if (it.node != node) return kLaunch;
  const double known = static_cast<double>(it.seconds) * speed.memory;
  return known > 0 ? known : kLaunch + bytes_of(step);
}

bool Program::is_timed() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.seconds > 0; });
}

bool Program::is_step(int64_t step, int64_t births_before, const History& history, int64_t operation) const {
  const Step& expected = steps[static_cast<size_t>(step)];
  const History::Operator& ended = history.at(operation);
  if (ended.shape != expected.shape || ended.births != births_before + expected.births) return false;
  const std::span<const Touch> touches = history.touches(operation);
  const std::span<const Use> expected_uses = uses_of(step);
  if (touches.size() != expected_uses.size()) return false;
  for (size_t i = 0; i < touches.size(); ++i) {
    const Slot& slot = expected_uses[i].slot;
    // A block of an earlier period need not be from the period before: others may lie between them.
    const bool foreign = !slot.lasting && slot.number < 1;
    if (touches[i].size != expected_uses[i].size) return false;
    if (!foreign && touches[i].block != slot.name(births_before)) return false;
  }
  return true;
}

std::optional<uint64_t> Program::key_of(int64_t step) const {
  std::optional<Name> eldest;
  for (const Use& use : uses_of(step)) {
    if (use.slot.lasting && (!eldest || use.slot.number < *eldest)) eldest = use.slot.number;
  }
  if (!eldest) return std::nullopt;
  return History::key_of(steps[static_cast<size_t>(step)].shape, *eldest);
}

std::vector<NodeId> Program::nodes() const {
  std::array<bool, kMaxNodes> has{};
  for (const Step& step : steps) has[index_of(step.node)] = true;
  std::vector<NodeId> found;
  for (size_t i = 0; i < kMaxNodes; ++i) {
    if (has[i]) found.push_back(NodeId{static_cast<uint8_t>(i)});
  }
  return found;
}

Bytes Program::touched_at(NodeId node) const {
  std::unordered_set<int64_t> seen;
  Bytes total{0};
  for (int64_t step = 0; step < length(); ++step) {
    if (steps[static_cast<size_t>(step)].node != node) continue;
    for (const Use& use : uses_of(step)) {
      if (seen.insert(use.slot.key()).second) total += use.size;
    }
  }
  return total;
}

Program repeated(const Program& program, int64_t times) {
  Program all;
  for (int64_t period = 0; period < times; ++period) {
    const auto from_the_first = [&](const Slot& slot) { return slot.later(-period, program.births); };
    const size_t first = all.uses.size();
    for (const Program::Step& step : program.steps)
      all.steps.push_back({step.shape, first + step.first, period * program.births + step.births, step.node,
                           step.seconds, step.host});
    for (const Program::Use& use : program.uses) {
      all.uses.push_back(use);
      all.uses.back().slot = from_the_first(use.slot);
    }
    for (const Program::Death& death : program.deaths)
      all.deaths.push_back({period * program.length() + death.after, from_the_first(death.slot)});
  }
  all.births = times * program.births;
  return all;
}

std::optional<Program> make_program(const History& history, int64_t length) {
  Program program;
  const int64_t begin = history.end() - length;
  const int64_t births_before = history.at(begin - 1).births;
  program.births = history.at(history.end() - 1).births - births_before;
  program.steps.reserve(static_cast<size_t>(length));
  for (int64_t at = begin; at < history.end(); ++at) {
    const History::Operator& ended = history.at(at);
    if (ended.births - history.at(at - length).births != program.births) return std::nullopt;
    // The lesser time of two periods: the time of another thread's kernels is no part of it.
    const History::Operator& earlier = history.at(at - length);
    program.steps.push_back({ended.shape, program.uses.size(), ended.births - births_before, ended.node,
                             std::min(ended.seconds, earlier.seconds), std::min(ended.host, earlier.host)});
    const std::span<const Touch> now = history.touches(at);
    const std::span<const Touch> before = history.touches(at - length);
    for (size_t i = 0; i < now.size(); ++i) {
      const bool lasting = now[i].block == before[i].block;
      const Slot slot{lasting ? now[i].block : now[i].block - births_before, lasting};
      program.uses.push_back({slot, now[i].size, now[i].write, now[i].stays, now[i].pure});
    }
  }
  take_least_host_time(program);
  // Deaths after the last step have not happened yet: they are those before the first step, a period later.
  for (const History::Death& death : history.deaths_from(begin - 1)) {
    const bool earlier = death.after < begin;
    program.deaths.push_back({death.after - begin + (earlier ? length : 0),
                              {death.block - births_before + (earlier ? program.births : 0), false}});
  }
  return program;
}

}  // namespace innkeeper::plan
