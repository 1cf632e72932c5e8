#!/usr/bin/env bash
# What of transformers runs on the managed device to the CPU's bits: every architecture, and docs/compatibility.md of it.
#   ONLY='gpt2|bert'  these alone, and no document      QUICK=1  the same with three
# Half an hour and more, so no part of make test.
source "$(dirname "$0")/common.sh"
OUT=build/compat
ONLY=${ONLY:-${QUICK:+gpt2|bert|vit}}
mkdir -p "$OUT"
status=0
"$VENV_PYTHON" tests/compat/architectures.py --json "$OUT/architectures.json" ${ONLY:+--only "$ONLY"} || status=$?
if [ -z "$ONLY" ]; then
  "$VENV_PYTHON" tests/compat/page.py "$OUT/architectures.json" docs/compatibility.md
fi
exit "$status"
