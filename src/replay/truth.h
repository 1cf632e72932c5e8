// Makes a record whose kernels take as long as on a machine that differs from the model (cost/truth.h).
#pragma once

#include "cost/truth.h"
#include "trace/record.h"

namespace innkeeper::replay {

trace::AccessRecord with_true_kernels(const trace::AccessRecord& record, const cost::Truth& truth);

}  // namespace innkeeper::replay
