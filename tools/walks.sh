#!/usr/bin/env bash
# Random programs for longer than make test runs them: walks.sh STEPS, half against the model of core and half as PyTorch
# programs; one planned program, and one damaged file of the queue, for each 500 steps. Each prints its seed;
# INNKEEPER_SEED repeats it.
source "$(dirname "$0")/common.sh"
source tools/run_tests.sh
steps=${1:-}
[[ $steps =~ ^[0-9]+$ ]] || die "walks.sh STEPS: '$steps' is no number"
build_core_tests
INNKEEPER_STEPS=$((steps / 2)) INNKEEPER_PROGRAMS=$((steps / 500 + 1)) INNKEEPER_ROUNDS=$((steps / 500 + 1)) \
  "$WHEEL_BUILD/tests/tests_one" --gtest_filter='*Walk*:Periods.*:*Damage*' --gtest_brief=1
INNKEEPER_STEPS=$((steps / 2)) "$VENV_PYTHON" -W ignore tests/support/python/walk.py | tail -n 12
