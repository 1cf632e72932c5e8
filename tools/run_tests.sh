# Sourced: how the tests of each tier are built and run. Reports and logs go to build/reports.
REPORTS=build/reports
mkdir -p "$REPORTS"

# The sanitizers cannot always place their shadow memory where addresses are strongly randomised.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
  fixed_addresses=(setarch "$(uname -m)" -R)
fi

# configure NAME CMAKE-ARGUMENTS...
configure() {
  local log=$REPORTS/$1.configure.log
  cmake "${@:2}" >"$log" 2>&1 || { cat "$log"; exit 1; }
}

# build DIRECTORY NAME TARGET...
build() {
  "$PYTHON" tools/progress.py "$REPORTS/$2.build.log" "$2" cmake --build "$1" --target "${@:3}" -j "$JOBS"
}

# Of the Release build that the package is made of, against its objects.
build_core_tests() {
  configure core -S . -B "$WHEEL_BUILD" -DINNKEEPER_TESTS=ON
  build "$WHEEL_BUILD" core tests_one
}

# The running shards. Bash lets background processes ignore Ctrl-C, so a script that ends early has to stop them.
shards=()
trap '[ ${#shards[@]} = 0 ] || kill "${shards[@]}" 2>/dev/null || true' EXIT

# run_core_tests PROGRAM NAME [GTEST_FILTER]: in shards, each a process of its own: twice as many as there are cores,
# since most of the time the tests wait. Prints how many ran and what failed; skips are held to tests/allowed_skips.txt.
# A shard without a report fails, whatever its exit status: it ended in the middle. A run of no test fails.
run_core_tests() {
  local program=$1 name=$2 filter=${3:-*} shard failed=0 count=$((2 * JOBS))
  shards=()
  rm -f "$REPORTS/gtest-$name-"*
  for ((shard = 0; shard < count; ++shard)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$shard timeout --foreground -k 10 1500 "${fixed_addresses[@]}" "$program" \
      --gtest_filter="$filter" --gtest_brief=1 --gtest_output="xml:$PWD/$REPORTS/gtest-$name-$shard.xml" \
      >"$REPORTS/gtest-$name-$shard.log" 2>&1 &
    shards+=($!)
  done
  for ((shard = 0; shard < count; ++shard)); do
    wait "${shards[shard]}" || failed=1
    if [ ! -s "$REPORTS/gtest-$name-$shard.xml" ]; then  # The failures of a report are printed below.
      failed=1
      tail -n 60 "$REPORTS/gtest-$name-$shard.log"
      echo "$name: shard $shard of $count ended in the middle of its tests"
    fi
  done
  shards=()
  "$PYTHON" tools/show_failures.py "$REPORTS/gtest-$name-"*.xml
  "$PYTHON" tools/count_tests.py "$name" "$REPORTS/gtest-$name-"*.xml || failed=1
  "$PYTHON" tools/check_skips.py --quiet gtest "$REPORTS/gtest-$name-"*.xml || failed=1
  return "$failed"
}

# run_python_tests TIER [FILE...]: all Python tests of the tier unless files or directories are named; the slowest
# twenty are printed.
run_python_tests() {
  local report=$REPORTS/pytest-$1.xml failed=0 tests=("${@:2}")
  [ ${#tests[@]} != 0 ] || tests=(tests/python tests/cli)
  # shellcheck disable=SC2086
  "$VENV_PYTHON" -m pytest --tier "$1" -n "$((JOBS < 4 ? JOBS : 4))" --dist worksteal --durations 20 -q \
    --junitxml="$report" "${tests[@]}" ${PYTEST_ARGS:-} || failed=$?
  [ "$failed" != 5 ] || [ $# = 1 ] || failed=0  # the files that were named have no test of this tier
  "$VENV_PYTHON" tools/check_skips.py --quiet pytest "$report" || failed=1
  return "$failed"
}
