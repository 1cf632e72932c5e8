#!/usr/bin/env bash
# The torch layer's C++ tests under AddressSanitizer, leaks included. LibTorch itself is not instrumented. The layer is
# compiled again for it, which takes as long as make setup: so it is not part of make test. QUICK=1: the directory base
# alone is compiled, to see that it works.
source "$(dirname "$0")/common.sh"
BUILD=build/torch-asan
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINNKEEPER_TORCH=ON -DINNKEEPER_TESTS=ON \
  -DINNKEEPER_SANITIZE=address -DPython3_EXECUTABLE="$(realpath -s "$VENV_PYTHON")" >build/torch-asan.configure.log ||
  { cat build/torch-asan.configure.log; exit 1; }
if [ -n "${QUICK:-}" ]; then
  cmake --build "$BUILD" --target innkeeper_base -j "$JOBS" -- --quiet
  exit 0
fi
cmake --build "$BUILD" --target tests_torch -j "$JOBS" -- --quiet
ctest --test-dir "$BUILD" -L torch --output-on-failure --no-tests=error -j 1 --progress
