#!/usr/bin/env bash
# Compiles the torch layer and the Python module, CUDA's part included, against the headers of every PyTorch that is
# supported: the oldest, ours ($VENV's) and the newest. Syntax only: no library, no GPU and no CUDA toolkit needed.
#
# Headers come out of pip's wheels, half a gigabyte each, and are kept in build/check-torch (the wheels are not).
# What has passed is not compiled again until a source or a header of ours changes. PyTorch's own headers are
# precompiled once for each version, which is most of the time saved; PCH=off does without, and so finds a file that
# does not include what it uses.
#   QUICK=1                     one source against ours, to see that it works
#   CHECK_TORCH="2.11.0 ours"   only these versions        FILES="src/torch/cuda/*.cc"   only these sources
source "$(dirname "$0")/common.sh"
OLDEST=2.11.0
CACHE=build/check-torch
[ -x "$VENV_PYTHON" ] || VENV_PYTHON=$PYTHON
[ -z "${QUICK:-}" ] || { CHECK_TORCH=ours FILES=src/torch/start/home.cc PCH=off; }
mkdir -p "$CACHE"

pip_quietly() { "$VENV_PYTHON" -m pip --disable-pip-version-check "$@" 2>"$CACHE/pip.log" || die "$(cat "$CACHE/pip.log")"; }

# What cannot be fetched says nothing of the sources.
skip() {
  echo "skipped: $*"
  exit 0
}

# unpack WHEEL DIRECTORY PATTERN: the wheel's files whose names match the pattern.
unpack() {
  "$VENV_PYTHON" - "$@" <<'PY'
import re, sys, zipfile
wheel, directory, pattern = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(directory, [name for name in archive.namelist() if re.search(pattern, name)])
PY
}

# headers REQUIREMENT DIRECTORY PATTERN: those files of a package from pip, once.
headers() {
  [ -e "$2/.complete" ] && return 0
  local download=$CACHE/download
  rm -rf "$download" "$2"
  echo "Fetching the headers of $1"
  "$VENV_PYTHON" -m pip --disable-pip-version-check download --quiet --no-deps --no-cache-dir --only-binary=:all: \
    --dest "$download" "$1" 2>"$CACHE/pip.log" || skip "$1 cannot be fetched: $(tail -n 1 "$CACHE/pip.log")"
  unpack "$download"/*.whl "$2" "$3"
  rm -rf "$download"
  touch "$2/.complete"
}

newest() {
  pip_quietly install --quiet --dry-run --no-deps --ignore-installed --report - torch |
    "$VENV_PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["install"][0]["metadata"]["version"].split("+")[0])'
}

# The directory of PyTorch's headers for a version, or ours.
include_of() {
  if [ "$1" = ours ]; then
    "$VENV_PYTHON" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("torch").origin).parent / "include")'
  else
    echo "$CACHE/torch-$1/torch/include"
  fi
}

# check VERSION INCLUDE: every source against these headers.
check() {
  local version=$1 include=$2 stamp=$CACHE/passed-$1 wanted
  # shellcheck disable=SC2206 # FILES is a list of words
  local sources=(${FILES:-$(find src/torch src/bindings -name '*.cc' | sort)})
  wanted=$({ "$CXX" --version; cat tools/check_torch.sh; find src include -name '*.h' -print0 | sort -z | xargs -0 cat
             cat "${sources[@]}"; cat "$include/torch/headeronly/version.h"; } | sha256sum)
  header "PyTorch $version: ${#sources[@]} files"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    echo "unchanged since it passed"
    return 0
  fi
  "$VENV_PYTHON" tools/check_forwarding.py "$include"
  local flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fvisibility=hidden
    -DINNKEEPER_WITH_CUDA -DTORCH_EXTENSION_NAME=_C '-DINNKEEPER_VERSION="0"' -Isrc -Iinclude
    -isystem "$include" -isystem "$include/torch/csrc/api/include" -isystem "$PYTHON_INCLUDE")
  local directory
  for directory in "$CACHE"/cuda*/nvidia/*/include; do flags+=(-isystem "$directory"); done
  # A build without CUDA has its headers, but not this one that says how it was configured.
  [ -e "$include/c10/cuda/impl/cuda_cmake_macros.h" ] || flags+=(-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE)
  if [ "${PCH:-on}" = on ]; then
    mkdir -p "$CACHE/pch-$version"
    local pch=$CACHE/pch-$version/pch.h
    grep -v '^#pragma once' src/torch/pch.h >"$pch"
    "$CXX" "${flags[@]/-fsyntax-only/-Winvalid-pch}" -x c++-header "$pch" -o "$pch.gch" ||
      die "PyTorch $version: its headers do not compile"
    flags+=(-Winvalid-pch -include "$pch")
  fi
  printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$JOBS" "$CXX" "${flags[@]}" || die "PyTorch $version: failed"
  echo "clean"
  [ -n "${FILES:-}" ] || echo "$wanted" >"$stamp"
}

PYTHON_INCLUDE=$("$VENV_PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
versions=${CHECK_TORCH:-"ours $OLDEST $(newest)"}
# Which release of CUDA 13 does not matter to the few of its headers that are used.
[ -n "${QUICK:-}" ] || headers "nvidia-cuda-runtime>=13,<14" "$CACHE/cuda" '/include/'
[ -n "${QUICK:-}" ] || [ -n "$(find "$CACHE/cuda" -path '*/crt/host_config.h')" ] ||
  headers "nvidia-cuda-crt>=13,<14" "$CACHE/cuda-crt" '/include/'
for version in $versions; do
  [ "$version" = ours ] || headers "torch==$version" "$CACHE/torch-$version" '^torch/(include/|version\.py)'
  check "$version" "$(include_of "$version")"
done
