// Marks what libinnkeeper_torch offers to its bindings and to C++ programs; all else is hidden.
#pragma once

#define IK_EXPORT __attribute__((visibility("default")))
