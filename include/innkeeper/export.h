// Marks the symbols that libinnkeeper_torch exports to its bindings and to C++ programs. The library exports
// a marked name if src/torch/exports.txt lists it, too; all others are hidden.
#pragma once

#define IK_EXPORT __attribute__((visibility("default")))
