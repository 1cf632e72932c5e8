#!/usr/bin/env bash
# Benchmarks: those of core in C++, then each bench/*.py but the soak, which takes an hour. They measure; they do not
# judge. QUICK=1: as shortly as each can, to see that it works.
source "$(dirname "$0")/common.sh"

targets=()
if [ -n "${QUICK:-}" ] && [ -x build/dev/src/cli/innkeeper ]; then  # the program of make test will do
  targets=(--target benches)
  export INNKEEPER_PROGRAM=${INNKEEPER_PROGRAM:-$PWD/build/dev/src/cli/innkeeper}
fi
CXX=$CXX cmake --preset release >/dev/null
cmake --build --preset release ${targets[@]+"${targets[@]}"} -j "$JOBS" -- --quiet
for binary in build/release/bench/*_bench; do
  [ -x "$binary" ] || continue
  header "$(basename "$binary")"
  "$binary" ${QUICK:+--benchmark_min_time=0.001 --benchmark_filter=-/1000000}
done
for script in bench/*.py; do
  [ "$script" != bench/soak.py ] || continue
  header "$script"
  "$VENV_PYTHON" "$script" ${QUICK:+--quick}
done
