// Marks the symbols that libinnkeeper_torch exports to its bindings and to C++ programs; all
// others are hidden.
#pragma once

#define IK_EXPORT __attribute__((visibility("default")))
