#!/usr/bin/env bash
# make check: what a change is held to first. Layers, format and Python lint; all tests of core, in one program that is
# linked to the package's own objects; the Python tests that start no process; the program's tests that start it alone.
#   CHANGED=1   only what the files reach that differ from HEAD (or from a revision: CHANGED=main)
source "$(dirname "$0")/common.sh"
source tools/run_tests.sh

if [ -n "${CHANGED:-}" ]; then
  [ "$CHANGED" != 1 ] || CHANGED=HEAD
  exec "$VENV_PYTHON" tools/check_changed.py "$CHANGED"
fi

header "layers, format and Python lint"
tools/lint.sh structure
tools/lint.sh format
tools/lint.sh python

header "core"
build_core_tests
failed=0
run_core_tests "$WHEEL_BUILD/tests/tests_one" core || failed=1

header "Python, and the program started alone"
run_python_tests check || failed=1
[ "$failed" = 0 ] || die "tests failed, in core or in Python; again: make test FAILED=1"
