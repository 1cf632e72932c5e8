#include "lease/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace innkeeper::lease {
namespace {

// Limit up to which subsets are tried one by one, which takes some microseconds under the lock; 8 GPUs
// have at most 70.
constexpr size_t kMaxSubsets = 1000;

size_t subsets(size_t of, size_t size) {
  size_t count = 1;
  for (size_t i = 0; i < size; ++i) {
    count = count * (of - i) / (i + 1);
    if (count > kMaxSubsets) return count;
  }
  return count;
}

// Chooses `wanted` GPUs of a pool, in addition to fixed ones, for the best sum of links.
class Linker {
 public:
  Linker(const Machine& machine, std::vector<size_t> fixed, const std::vector<size_t>& pool, size_t wanted)
      : machine_(machine), pool_(pool), wanted_(wanted), chosen_(std::move(fixed)) {}

  std::vector<size_t> best() {
    if (subsets(pool_.size(), wanted_) <= kMaxSubsets) {
      const size_t fixed = chosen_.size();
      extend(0, fixed + wanted_, 0);
      return best_;
    }
    return grown();
  }

 private:
  double link(size_t a, size_t b) const { return machine_.links[a * machine_.gpus.size() + b]; }
  static double sum_with(const Linker& self, const std::vector<size_t>& chosen, size_t gpu) {
    double sum = 0;
    for (const size_t other : chosen) sum += self.link(gpu, other);
    return sum;
  }

  // The pool is sorted by preference, so of equal sums the first one stays.
  void extend(size_t from, size_t size, double sum) {
    if (chosen_.size() == size) {
      if (!best_.empty() && sum <= best_sum_) return;
      best_ = chosen_;
      best_sum_ = sum;
      return;
    }
    for (size_t i = from; i + (size - chosen_.size()) <= pool_.size(); ++i) {
      const double more = sum_with(*this, chosen_, pool_[i]);
      chosen_.push_back(pool_[i]);
      extend(i + 1, size, sum + more);
      chosen_.pop_back();
    }
  }

  // Greedy search for too many subsets: from each first GPU on, adds the one with the best links
  // to those chosen.
  std::vector<size_t> grown() const {
    std::vector<size_t> best;
    double best_sum = -std::numeric_limits<double>::infinity();
    for (const size_t first : pool_) {
      std::vector<size_t> chosen = chosen_;
      std::vector<size_t> rest = pool_;
      double sum = 0;
      for (size_t taken = 0; taken < wanted_; ++taken) {
        auto next = std::find(rest.begin(), rest.end(), first);
        if (taken > 0)
          next = std::max_element(rest.begin(), rest.end(), [&](size_t a, size_t b) {
            return sum_with(*this, chosen, a) < sum_with(*this, chosen, b);
          });
        sum += sum_with(*this, chosen, *next);
        chosen.push_back(*next);
        rest.erase(next);
      }
      if (sum <= best_sum) continue;
      best_sum = sum;
      best = std::move(chosen);
    }
    return best;
  }

  const Machine& machine_;
  const std::vector<size_t>& pool_;
  const size_t wanted_;
  std::vector<size_t> chosen_;
  std::vector<size_t> best_;
  double best_sum_ = 0;
};

// Groups the GPUs for which `good` holds by vendor.
std::map<int, std::vector<size_t>> by_vendor(const Machine& machine,
                                             const std::function<bool(size_t)>& good) {
  std::map<int, std::vector<size_t>> vendors;
  for (size_t i = 0; i < machine.gpus.size(); ++i)
    if (good(i)) vendors[machine.gpus[i].vendor].push_back(i);
  return vendors;
}

// Chooses among GPUs of one vendor. Requires: there are enough candidates.
std::vector<size_t> choose_among(const Machine& machine, const Ledger& ledger, size_t wanted,
                                 const std::vector<double>& scores, std::vector<size_t> candidates) {
  const auto unclaimed = [&](size_t i) { return ledger[i].leases + ledger[i].waiting == 0; };
  std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
    if (unclaimed(a) != unclaimed(b)) return unclaimed(a);
    if (scores[a] != scores[b]) return scores[a] > scores[b];
    return machine.gpus[a].uuid < machine.gpus[b].uuid;
  });
  std::vector<size_t> chosen(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(wanted));
  if (wanted == 1 || machine.links.empty()) return chosen;
  const auto split = std::find_if_not(candidates.begin(), candidates.end(), unclaimed);
  const bool enough = static_cast<size_t>(split - candidates.begin()) >= wanted;
  std::vector<size_t> fixed, pool;
  if (!enough) fixed.assign(candidates.begin(), split);
  pool.assign(enough ? candidates.begin() : split, enough ? split : candidates.end());
  const size_t more = wanted - fixed.size();
  return Linker(machine, std::move(fixed), pool, more).best();
}

// Rates a choice against one of another vendor, by the same rules.
std::tuple<size_t, double, double> worth(const Machine& machine, const Ledger& ledger,
                                         const std::vector<double>& scores,
                                         const std::vector<size_t>& chosen) {
  size_t unclaimed = 0;
  double links = 0, score = 0;
  for (const size_t a : chosen) {
    unclaimed += ledger[a].leases + ledger[a].waiting == 0;
    score += scores[a];
    for (const size_t b : chosen)
      if (a != b && !machine.links.empty()) links += machine.links[a * machine.gpus.size() + b];
  }
  return {unclaimed, links, score};
}

}  // namespace

Wish wish_of(const Request& request) {
  return {request.count, request.memory.value_or(Bytes(0)), request.whole(), request.foreign_allowed};
}

Wish wish_of(const Record& waiting) {
  return {static_cast<int>(waiting.count), waiting.each, waiting.exclusive, Request().foreign_allowed};
}

std::vector<double> scores(const Machine& machine, const Ledger& ledger, By by,
                           const std::vector<double>& keys) {
  constexpr double kUnknown = -std::numeric_limits<double>::infinity();
  std::vector<double> result = keys;
  // NaN has no order among numbers, and sorting needs one.
  std::replace_if(
      result.begin(), result.end(), [](double key) { return std::isnan(key); }, kUnknown);
  if (!keys.empty()) return result;
  for (size_t i = 0; i < ledger.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    const auto available = static_cast<double>(ledger[i].available.count());
    const auto capacity = static_cast<double>(ledger[i].capacity.count());
    switch (by) {
      case By::free: result.push_back(available); break;
      case By::ratio: result.push_back(capacity > 0 ? available / capacity : kUnknown); break;
      case By::power: result.push_back(gpu.power_ratio ? -*gpu.power_ratio : kUnknown); break;
      case By::utilization: result.push_back(gpu.utilization ? -*gpu.utilization : kUnknown); break;
    }
  }
  return result;
}

bool can_ever_fit(const Standing& standing, const Wish& wish) {
  return standing.allowed && standing.capacity >= wish.memory;
}

bool fits(const Standing& standing, const Wish& wish) {
  if (!can_ever_fit(standing, wish) || standing.taken) return false;
  if (!wish.exclusive) return standing.available >= wish.memory;
  return standing.leases == 0 && standing.waiting == 0 && standing.foreign <= wish.foreign_allowed &&
         standing.available >= wish.memory;
}

Bytes part_of(const Standing& standing, const Wish& wish) {
  return wish.exclusive ? standing.capacity : wish.memory;
}

size_t most_of_one_vendor(const Machine& machine, const std::function<bool(size_t)>& good) {
  size_t most = 0;
  for (const auto& [vendor, gpus] : by_vendor(machine, good)) most = std::max(most, gpus.size());
  return most;
}

std::optional<std::vector<size_t>> choose(const Machine& machine, const Ledger& ledger, const Wish& wish,
                                          const std::vector<double>& scores) {
  const auto wanted = static_cast<size_t>(wish.count);
  std::optional<std::vector<size_t>> best;
  for (auto& [vendor, candidates] : by_vendor(machine, [&](size_t i) { return fits(ledger[i], wish); })) {
    if (candidates.size() < wanted) continue;
    std::vector<size_t> chosen = choose_among(machine, ledger, wanted, scores, std::move(candidates));
    if (!best || worth(machine, ledger, scores, chosen) > worth(machine, ledger, scores, *best))
      best = std::move(chosen);
  }
  if (best)
    std::sort(best->begin(), best->end(),
              [&](size_t a, size_t b) { return machine.gpus[a].uuid < machine.gpus[b].uuid; });
  return best;
}

std::optional<std::vector<size_t>> choose_to_wait_for(const Machine& machine, const Ledger& ledger,
                                                      const Wish& wish) {
  const auto wanted = static_cast<size_t>(wish.count);
  std::optional<std::vector<size_t>> best;
  for (auto& [vendor, candidates] :
       by_vendor(machine, [&](size_t i) { return can_ever_fit(ledger[i], wish); })) {
    if (candidates.size() < wanted) continue;
    std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
      if (ledger[a].available != ledger[b].available) return ledger[a].available > ledger[b].available;
      return machine.gpus[a].uuid < machine.gpus[b].uuid;
    });
    candidates.resize(wanted);
    // The last candidate lacks most.
    if (!best || ledger[candidates.back()].available > ledger[best->back()].available)
      best = std::move(candidates);
  }
  return best;
}

}  // namespace innkeeper::lease
