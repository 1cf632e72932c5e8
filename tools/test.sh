#!/usr/bin/env bash
# All tests that need no GPU, cheapest first; stops at the first step of core's that fails. The runners' own summaries
# stand last in what each step prints, pytest's last of all. Skips are counted against tests/allowed_skips.txt.
source "$(dirname "$0")/common.sh"
REPORTS=build/reports
mkdir -p "$REPORTS"
rm -f "$REPORTS"/*.xml

# The sanitizers cannot always place their shadow memory where addresses are strongly randomised.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
  fixed_addresses=(setarch "$(uname -m)" -R)
fi

# build_and_test PRESET: configure, build, run the preset's tests, count skips.
build_and_test() {
  cmake --preset "$1" >"$REPORTS/$1.configure.log" || { cat "$REPORTS/$1.configure.log"; exit 1; }
  cmake --build --preset "$1" -j "$JOBS" -- --quiet
  "${fixed_addresses[@]}" ctest --preset "$1" -j "$JOBS" --progress --output-junit "$PWD/$REPORTS/ctest-$1.xml" ||
    { "$VENV_PYTHON" tools/show_failures.py "$REPORTS/ctest-$1.xml"; exit 1; }
}

# Much of it waits, so it is run beside the builds for the sanitizers.
python_side() {
  header "torch layer: tests with LibTorch"
  cmake --build "$WHEEL_BUILD" --target tests_torch -j "$JOBS" -- --quiet
  ctest --test-dir "$WHEEL_BUILD" -L torch --output-on-failure --no-tests=error -j 1 --progress \
    --output-junit "$PWD/$REPORTS/ctest-torch.xml"

  header "python"
  # shellcheck disable=SC2086
  "$VENV_PYTHON" -m pytest -n "$((JOBS < 4 ? JOBS : 4))" --dist worksteal --durations 10 \
    --junitxml="$REPORTS/pytest.xml" ${PYTEST_ARGS:-}
}

header "layers and file sizes"
tools/lint.sh structure

header "core: build and tests"
build_and_test dev

echo "the tests with PyTorch run beside what follows; their output comes last, and is in $REPORTS/python.log till then"
set -m  # a process group of its own, to be ended as one
(python_side) >"$REPORTS/python.log" 2>&1 &
beside=$!
set +m
trap 'kill -- "-$beside" 2>/dev/null || true' EXIT

header "core under AddressSanitizer and UndefinedBehaviorSanitizer"
build_and_test asan-ubsan

header "core under ThreadSanitizer: stress tests"
build_and_test tsan

header "core by clang: its lock annotations, and its libFuzzer for a minute"
tools/fuzz.sh 60

header "the program innkeeper: its built binary on fake GPUs"
"$VENV_PYTHON" -m pytest -q -p no:cacheprovider tests/cli --junitxml="$REPORTS/pytest-cli.xml"
passed=yes
"$VENV_PYTHON" tools/check_skips.py --quiet pytest "$REPORTS/pytest-cli.xml" || passed=no
wait "$beside" || passed=no
header "skips of the C++ tests"
"$VENV_PYTHON" tools/check_skips.py ctest "$REPORTS"/ctest-*.xml || passed=no
cat "$REPORTS/python.log"
"$VENV_PYTHON" tools/check_skips.py --quiet pytest "$REPORTS/pytest.xml" || passed=no
[ "$passed" = yes ]
