#!/usr/bin/env bash
# make test: make check, then the tests that start processes, are slow, or need a browser or Slurm; walks, fault sweeps,
# scripts, PyTorch's operator database in short form; the torch layer's C++ tests. pytest's own summary stands last.
#   FAILED=1   only what failed last
source "$(dirname "$0")/common.sh"
source tools/run_tests.sh

# run_torch_tests [CTEST-ARGUMENT...]
run_torch_tests() {
  build "$WHEEL_BUILD" torch tests_torch tests_fake_cuda
  ctest --test-dir "$WHEEL_BUILD" --output-on-failure --no-tests=error -j 1 --progress \
    --output-junit "$PWD/$REPORTS/ctest-torch.xml" "$@"
  "$PYTHON" tools/check_skips.py gtest "$REPORTS"/ctest-torch.xml
}

if [ -n "${FAILED:-}" ]; then
  failed=$("$PYTHON" tools/count_tests.py --failed "$REPORTS"/gtest-core-*.xml)
  for log in "$REPORTS"/gtest-core-*.log; do
    [ ! -e "$log" ] || [ -e "${log%.log}.xml" ] || failed='*'  # it ended in the middle: which test did it is not known
  done
  if [ -n "$failed" ]; then
    build_core_tests
    run_core_tests "$WHEEL_BUILD/tests/tests_one" core "$failed"
  fi
  if [ -n "$("$PYTHON" tools/count_tests.py --failed "$REPORTS/ctest-torch.xml")" ]; then
    run_torch_tests --rerun-failed
  fi
  # 5: no Python test failed.
  PYTEST_ARGS="--last-failed --last-failed-no-failures none" run_python_tests test || [ $? = 5 ]
  exit
fi
tools/check.sh

header "the torch layer in C++, and the CUDA runtime without a GPU"
run_torch_tests

header "Python, and the program: processes, and what is slow"
run_python_tests rest
