#!/usr/bin/env bash
# The table of training under one cap of GPU memory (bench/gpu_table). With a GPU: with the PyTorch that python3 already
# has and the package in build/gpu/site, as make gpu. Without: in $VENV, at the smallest shape, to try the code.
#   ALL=1       all cells, not the default selection
#   AGAIN=1     also the cells that have a result
#   MINUTES=N   begin no cell that would end later (6)
#   ONLY=REGEX  the cells whose names match
#   OUT=DIRECTORY  where the file of results is (else build/gpu)
#   BUILT=1     build nothing: build/gpu/site is there
source "$(dirname "$0")/common.sh"
source tools/gpu_site.sh

words=(${ALL:+--all} ${AGAIN:+--again} ${MINUTES:+--minutes "$MINUTES"} ${ONLY:+--only "$ONLY"})
reason=$(obstacle)
if [ -n "$reason" ]; then
  echo "no GPU: $PYTHON: $reason"
  tools/setup.sh
  exec "$VENV_PYTHON" bench/gpu_table --trial "${words[@]}"
fi
build_site
with_site "$PYTHON" bench/gpu_table "${words[@]}"
