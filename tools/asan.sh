#!/usr/bin/env bash
# The torch layer's C++ tests under AddressSanitizer, leaks included. LibTorch itself is not instrumented. The layer is
# compiled anew for it, which takes as long as make setup: so it is not part of make test.
source "$(dirname "$0")/common.sh"
BUILD=build/torch-asan
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINNKEEPER_TORCH=ON -DINNKEEPER_TESTS=ON \
  -DINNKEEPER_SANITIZE=address -DPython3_EXECUTABLE="$PWD/$VENV_PYTHON" >build/torch-asan.configure.log ||
  { cat build/torch-asan.configure.log; exit 1; }
cmake --build "$BUILD" --target tests_torch -j "$JOBS" -- --quiet
ctest --test-dir "$BUILD" -L torch --output-on-failure --no-tests=error -j 1 --progress
