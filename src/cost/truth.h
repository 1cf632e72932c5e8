// A machine that differs from the cost model by factors drawn from a seed. It tests plans that are made with
// modelled kernel times (INNKEEPER_SIM=truth=random:SEED, `innkeeper replay --truth SEED`). An unperturbed
// simulator uses the model's own formulas, so only this test is evidence.
#pragma once

#include <cstdint>
#include <string_view>

#include "cost/gpu_model.h"
#include "cost/link_model.h"

namespace innkeeper::cost {

class Truth {
 public:
  explicit Truth(uint64_t seed) : seed_(seed) {}

  // Returns the ratio of a kernel's time to the model's. A kind is an operator, a precision, and the power of
  // two of the bytes. Each kind takes between half and twice as long, drawn evenly on a logarithmic scale.
  double slower(std::string_view op, const KernelCost& kernel) const;

  // Memory and link reach 0.6 to 1 of their rated speed. A probe measures these two, so a
  // model may know them.
  GpuModel with_true_memory(GpuModel gpu) const;
  LinkModel with_true_rate(LinkModel link) const;

 private:
  double rate(std::string_view of) const;

  uint64_t seed_;
};

}  // namespace innkeeper::cost
