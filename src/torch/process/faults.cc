#include "torch/process/faults.h"

namespace innkeeper::torch_layer::faults {
namespace {

std::atomic<int64_t> first{0}, last{0}, calls{0}, hits{0};

}  // namespace

namespace detail {

std::atomic<unsigned> armed{0};

bool counts(Fault) {
  const int64_t call = calls.fetch_add(1) + 1;
  if (call < first.load() || call > last.load()) return false;
  hits.fetch_add(1);
  return true;
}

}  // namespace detail

std::string message(const char* what) { return std::string("injected: ") + what; }

void arm(unsigned kinds, int64_t nth, int64_t more) {
  detail::armed.store(0);
  calls.store(0);
  hits.store(0);
  first.store(nth == 0 ? INT64_MAX : nth);
  last.store(nth == 0 ? 0 : nth + more);
  detail::armed.store(kinds);
}

Counts counts() { return {calls.load(), hits.load()}; }

}  // namespace innkeeper::torch_layer::faults
