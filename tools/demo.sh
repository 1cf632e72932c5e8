#!/usr/bin/env bash
# The demo: one script trained three ways, compared. QUICK=1: a tiny model, to see that it works.
source "$(dirname "$0")/common.sh"
tiny=(--steps 30 --width 32 --layers 2 --heads 2 --batch 4 --context 32 --lr 1e-2 --page build/demo-quick.html)
exec "$VENV_PYTHON" examples/demo.py ${QUICK:+"${tiny[@]}"} "$@"
