// The machine's GPUs for callers that choose by a function of their own.
#pragma once

#include <functional>

#include "innkeeper/gpus.h"
#include "lease/gpu.h"

namespace innkeeper::lease {

// Makes a Request::key from a function of a GPU. The function is called here once per GPU, not
// during the request.
std::function<double(const Gpu&)> by_keys(const std::function<double(const GPU&)>& key);

}  // namespace innkeeper::lease
