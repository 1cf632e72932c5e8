// Innkeeper for C++ programs: includes the whole public interface.
//
//     find_package(innkeeper REQUIRED)                       # CMAKE_PREFIX_PATH: innkeeper.cmake_prefix_path
//     target_link_libraries(program innkeeper::innkeeper)    # brings the LibTorch it was built with
//
//     innkeeper::configure("sim:1x64MiB,host:1GiB");
//     at::Tensor x = at::randn({1000, 1000}, innkeeper::device());
#pragma once

#include "innkeeper/choice.h"
#include "innkeeper/stats.h"
#include "innkeeper/torch/choice.h"
#include "innkeeper/torch/managed.h"
