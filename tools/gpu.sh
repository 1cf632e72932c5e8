#!/usr/bin/env bash
# The tests that need a GPU, with the PyTorch that python3 already has: no network, no environment of our own,
# no compiler cache. Where there is no such GPU it says why, and that is no failure.
#   OUT=DIRECTORY      where the figures go (else build/gpu)
#   PYTEST_ARGS="-k 'test_bits or test_evictions'"   only these tests; quotes inside count as a shell's
#   BUILD_ONLY=1       build and stop; needs a CUDA build of PyTorch, but no GPU
#   BUILT=1            build nothing: build/gpu/site is there
source "$(dirname "$0")/common.sh"
source tools/gpu_site.sh

reason=$(obstacle)
if [ -n "$reason" ]; then
  echo "gpu tests skipped: $PYTHON: $reason"
  exit 0
fi
build_site
[ -z "${BUILD_ONLY:-}" ] || exit 0

header "tests"
rm -f "${OUT:-build/gpu}/results-cuda.json"
failed=0
declare -a arguments
eval "arguments=(${PYTEST_ARGS:-})"
with_site "$PYTHON" -m pytest tests/gpu "${arguments[@]}" || failed=$?
header "figures, as rows for docs/gpu-results.md"
"$PYTHON" bench/gpu_table --tests "${OUT:-build/gpu}/results-cuda.json" || true
exit "$failed"
