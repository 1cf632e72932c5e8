#!/usr/bin/env bash
# Style and structure. lint.sh all | format | structure | python | spelling | shell | cmake | tidy | fix
# QUICK=1: looks at one file of C++ and one of Python only, to see that it works.
source "$(dirname "$0")/common.sh"
set -- "${1:-all}"

# It reads to the end, or what writes into it would fail.
some() { if [ -n "${QUICK:-}" ]; then sed -n 1p; else cat; fi; }

cxx_files() { find src include tests bench examples -name '*.h' -o -name '*.cc'; }

format() {
  local tool wrong
  tool=$(find_tool clang-format)
  [ -n "$tool" ] || die "clang-format is not installed"
  wrong=$(cxx_files | some | xargs -n 16 -P "$JOBS" "$tool" --dry-run --Werror 2>&1 |
    sed -nE 's/^([^: ]+):[0-9]+:[0-9]+: error.*/\1/p' | sort -u) ||
    [ -n "$wrong" ] || die "clang-format failed"
  [ -z "$wrong" ] || die "clang-format would change these files; run: make format
$wrong"
  # It leaves comments as they are (ReflowComments), so their length is looked at here.
  if cxx_files | some | xargs grep -nHE '^.{111,}' | grep '//'; then
    die "the comments above are longer than 110 columns; break them by hand"
  fi
}

structure() {
  "$PYTHON" tools/check_layers.py
  "$PYTHON" tools/check_figures.py
  "$PYTHON" tools/loc.py
  "$PYTHON" tools/check_shadows.py
  "$PYTHON" tools/check_words.py
  "$PYTHON" tools/draw_figures.py --check
}

python() {
  "$VENV_PYTHON" -m ruff format --check --quiet ${QUICK:+tools/loc.py} ||
    die "ruff would format the files above; run: make format"
  "$VENV_PYTHON" -m ruff check --quiet ${QUICK:+tools/loc.py}
  "$VENV_PYTHON" -m mypy ${QUICK:+tools/loc.py}
}

# venv_tool NAME [WORD...]: runs a program of the virtual environment.
venv_tool() {
  [ -x "$VENV/bin/$1" ] || die "$1 is not installed; run: tools/setup.sh check"
  "$VENV/bin/$1" "${@:2}"
}

# Words are excused in .codespellrc.
spelling() { venv_tool codespell ${QUICK:+tools/loc.py} || die "codespell found the words above"; }

# Settings are in .shellcheckrc.
shell() { venv_tool shellcheck tools/*.sh tools/mutate .ci/run; }

cmake_files() {
  find . \( -path ./build -o -path './.?*' \) -prune -o \( -name CMakeLists.txt -o -name '*.cmake' \) -print
}

# Settings are in .gersemirc.
cmake_format() {
  local wrong
  wrong=$(cmake_files | xargs "$VENV/bin/gersemi" --check 2>&1) && return 0
  die "gersemi would format CMake's files; run: make format
$wrong"
}

# Core alone: the torch layer's headers would take minutes.
tidy() {
  local tool clang
  tool=$(find_tool clang-tidy)
  clang=$(find_tool clang++)
  if [ -z "$tool" ] || [ -z "$clang" ]; then die "clang and clang-tidy are not installed"; fi
  # A directory of its own: `make test` configures the preset's while its tests run this.
  cmake --preset clang-thread-safety -B build/tidy -DINNKEEPER_CLI=ON -DINNKEEPER_UNITY=OFF \
    -DCMAKE_CXX_COMPILER="$clang" >/dev/null
  find src -name '*.cc' ! -path 'src/torch/*' ! -path 'src/bindings/*' | some | tr '\n' '\0' |
    xargs -0 -r -n 4 -P "$JOBS" "$tool" -p build/tidy --quiet 2> >(grep -v 'warnings generated' >&2)
}

case "$1" in
  all)  # each part, whatever the others find
    failed=()
    for part in structure format python spelling shell cmake tidy; do
      header "$part"
      tools/lint.sh "$part" || failed+=("$part")
    done
    [ ${#failed[@]} = 0 ] || die "lint failed: ${failed[*]}"
    ;;
  fix)
    cxx_files | xargs -r "$(find_tool clang-format)" -i
    "$VENV_PYTHON" -m ruff format .
    "$VENV_PYTHON" -m ruff check --fix .
    cmake_files | xargs -r "$VENV/bin/gersemi" --in-place --quiet
    ;;
  cmake) cmake_format ;;
  format | structure | python | spelling | shell | tidy) "$1" ;;
  *) die "usage: tools/lint.sh all|format|structure|python|spelling|shell|cmake|tidy|fix" ;;
esac
