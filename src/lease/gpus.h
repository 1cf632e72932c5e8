// The machine's GPUs for those who choose by a function of their own.
#pragma once

#include <functional>

#include "innkeeper/gpus.h"
#include "lease/card.h"

namespace innkeeper::lease {

// A Request::key out of a function of a GPU. It is called once with each here and now, not while asking.
std::function<double(const Card&)> by_keys(const std::function<double(const GPU&)>& key);

}  // namespace innkeeper::lease
