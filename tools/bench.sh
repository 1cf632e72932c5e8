#!/usr/bin/env bash
# Benchmarks: those of core in C++, then each bench/*.py but the soak, which takes an hour. They measure; they do not
# judge. QUICK=1: as shortly as each can, to see that it works.
source "$(dirname "$0")/common.sh"
source tools/run_tests.sh

configure bench -S . -B "$WHEEL_BUILD" -DINNKEEPER_BENCH=ON
build "$WHEEL_BUILD" "core's benchmarks" benches
export INNKEEPER_PROGRAM=${INNKEEPER_PROGRAM:-$PWD/$WHEEL_BUILD/src/cli/innkeeper}
for binary in "$WHEEL_BUILD"/bench/*_bench; do
  header "$(basename "$binary")"
  "$binary" ${QUICK:+--benchmark_min_time=0.001}
done
for script in bench/*.py; do
  [ "$script" != bench/soak.py ] || continue
  header "$script"
  "$VENV_PYTHON" "$script" ${QUICK:+--quick}
done
