#!/usr/bin/env bash
# The demo: one script trained three ways, compared.
source "$(dirname "$0")/common.sh"
exec "$VENV_PYTHON" examples/demo.py "$@"
