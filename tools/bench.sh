#!/usr/bin/env bash
# Benchmarks: those of core in C++, then each bench/*.py. They measure; they do not judge.
source "$(dirname "$0")/common.sh"

cmake --preset release >/dev/null
cmake --build --preset release -j "$JOBS" -- --quiet
for binary in build/release/bench/*_bench; do
  [ -x "$binary" ] || continue
  header "$(basename "$binary")"
  "$binary"
done
for script in bench/*.py; do
  [ -e "$script" ] || continue
  header "$script"
  "$VENV_PYTHON" "$script"
done
