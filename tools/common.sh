# Sourced by the scripts of this directory: where things are, how to print what runs, and --help: the words at a
# script's head.
# shellcheck disable=SC2034 # the scripts use its variables
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-.venv}
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-$(nproc)}
WHEEL_BUILD=build/wheel
# By one name for the package (a Python may know another) and the benchmarks, so that ccache has most of these.
CXX=${CXX:-g++}
VENV_PYTHON=$VENV/bin/python

header() { printf '\n== %s ==\n' "$*"; }

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

# find_tool clang++ : the plain name, or the newest with a version behind it. Prints nothing where there is none.
find_tool() {
  command -v "$1" && return 0
  compgen -c "$1-" | grep -E "^${1//+/\\+}-[0-9]+$" | sort -V | tail -n 1 || true
}
