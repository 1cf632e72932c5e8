#!/usr/bin/env bash
# Core's tests under sanitizers: sanitize.sh asan-ubsan (all of them) or tsan (those that test threads).
source "$(dirname "$0")/common.sh"
source tools/run_tests.sh
preset=${1:-}
case $preset in
  asan-ubsan) target=tests_one ;;
  tsan) target=tests_stress_one ;;
  *) die "sanitize.sh asan-ubsan|tsan: not '$preset'" ;;
esac
configure "$preset" --preset "$preset"
build "build/$preset" "$preset" "$target"
run_core_tests "build/$preset/tests/$target" "$preset"
