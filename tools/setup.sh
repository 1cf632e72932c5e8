#!/usr/bin/env bash
# Makes a checkout ready: system packages, a virtual environment with PyTorch, and the package built into it.
#   setup.sh          what the package and the demo need
#   setup.sh TIER     also what `make TIER` needs: check, test, verify (each with those before it), bench
#   setup.sh docs     what `make docs` needs, and neither PyTorch nor the package
# Does nothing, fast, where nothing has changed. Never touches an environment outside $VENV. Core is compiled while
# PyTorch is fetched.
source "$(dirname "$0")/common.sh"
source tools/apt.sh
case ${1:-package} in
  package) tiers=package ;;
  check | bench) tiers="package check $1" ;;
  test) tiers="package check test" ;;
  verify) tiers="package check test bench verify" ;;
  docs) tiers=docs ;;
  *) die "setup.sh [check|test|verify|bench|docs]: not $1" ;;
esac

# needs TIER: whether what is asked for contains that tier.
needs() { [[ " $tiers " == *" $1 "* ]]; }

header_exists() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }

# Debian package <- how to see that it is there.
missing_packages() {
  local tool
  if ! command -v "$PYTHON" >/dev/null; then
    echo python3 python3-venv
  elif ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    echo python3-venv
  fi
  ! needs package || packages_to_build
  if needs check; then
    command -v ccache >/dev/null || echo ccache
    [ -n "$(find_tool clang-format)" ] || echo clang-format
    header_exists gtest/gtest.h || echo libgtest-dev
    command -v tmux >/dev/null || echo tmux
  fi
  if needs verify; then
    for tool in clang++ clang-tidy; do
      [ -n "$(find_tool "$tool")" ] || echo "${tool/++/}"
    done
  fi
  if needs bench; then
    header_exists benchmark/benchmark.h || echo libbenchmark-dev
  fi
  if needs docs; then
    command -v doxygen >/dev/null || echo doxygen
  fi
}

packages_to_build() {
  command -v g++ >/dev/null || echo g++
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  header_exists sqlite3.h || echo libsqlite3-dev
  header_exists CLI/CLI.hpp || echo libcli11-dev
  header_exists fmt/format.h || echo libfmt-dev
  header_exists nlohmann/json.hpp || echo nlohmann-json3-dev
  if ! command -v "$PYTHON" >/dev/null || ! "$PYTHON" - <<'PY'
import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists())
PY
  then
    echo python3-dev
  fi
}

system_packages() {
  local missing
  missing=$(missing_packages | tr ' ' '\n' | sort -u | paste -sd' ')
  [ -n "$missing" ] || return 0
  command -v apt-get >/dev/null || die "Please install: $missing"
  [ "$(id -u)" = 0 ] || die "Missing Debian packages; please run: sudo apt-get install -y $missing"
  # shellcheck disable=SC2086
  apt_install $missing
}

apt_install() {
  local began=$SECONDS
  echo "Installing Debian packages: $*"
  if [ -z "${lists_updated:-}" ]; then
    apt_get update || echo "apt-get update failed; trying with the package lists there are" >&2
    lists_updated=yes
  fi
  apt_get install -y --no-install-recommends "$@" || return
  echo "Fetched and installed them in $((SECONDS - began)) s"
}

# What only some tests need: a browser to open the demo's page in, Slurm to submit to, and libFuzzer's runtime, which
# Debian packages apart from clang. Where they cannot be had those tests are skipped, so this never fails.
optional_packages() {
  local wanted=() package clang
  needs test && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  command -v chromium >/dev/null || wanted+=(chromium)
  command -v chromedriver >/dev/null || wanted+=(chromium-driver)
  daemon_exists slurmctld && daemon_exists slurmd && daemon_exists munged || wanted+=(slurm-wlm)
  if needs verify; then
    clang=$(find_tool clang++)
    [ -z "$clang" ] || fuzzer_runtime_exists "$clang" ||
      wanted+=("libclang-rt-$("$clang" -dumpversion | cut -d. -f1)-dev")
  fi
  for package in "${wanted[@]}"; do
    apt_install "$package" || echo "$package cannot be installed; the tests that need it will be skipped" >&2
  done
}

fuzzer_runtime_exists() {
  [ -e "$("$1" -print-file-name=libclang_rt.fuzzer-x86_64.a)" ] ||
    compgen -G "$("$1" -print-resource-dir)/lib/*/libclang_rt.fuzzer*.a" >/dev/null
}

daemon_exists() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

virtual_environment() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$PYTHON is $("$PYTHON" -V); Innkeeper needs Python 3.10 or newer (set PYTHON=...)"
  # venv installs pip last: an environment without pip is incomplete. The stamp of python_packages proves that pip
  # worked, and saves a third of a second.
  [ -x "$VENV_PYTHON" ] && [ -e "$VENV/.innkeeper-needs-build" ] ||
    "$VENV_PYTHON" -m pip --version >/dev/null 2>&1 || "$PYTHON" -m venv "$VENV"
}

# python_packages GROUP...: installs what pyproject.toml lists, and PyTorch unless a usable one is there or the package
# is not asked for.
python_packages() {
  local stamp=$VENV/.innkeeper-needs-$1 wanted began=$SECONDS
  wanted=$({ "$VENV_PYTHON" tools/needs.py "$@"; cat tools/needs.py; } | sha256sum)
  [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
  if needs package && ! "$VENV_PYTHON" tools/needs.py --torch-usable; then
    echo "Installing PyTorch"
    "$VENV_PYTHON" -m pip install -qq --disable-pip-version-check "torch==2.13.0"
  fi
  echo "Installing Python packages: $*"
  "$VENV_PYTHON" tools/needs.py "$@" |
    "$VENV_PYTHON" -m pip install -qq --disable-pip-version-check -r /dev/stdin
  echo "Fetched and installed them in $((SECONDS - began)) s"
  echo "$wanted" >"$stamp"
}

# Of all that the package is made of.
fingerprint() {
  { pwd
    find src include python cmake docs/innkeeper.1 CMakeLists.txt pyproject.toml README.md tools/setup.sh \
      "$VENV"/lib/python*/site-packages/torch/version.py -type f ! -name '*.pyc' -printf '%p %s %T@\n' | sort
  } | sha256sum
}

up_to_date() {
  [ -d "$WHEEL_BUILD" ] && compgen -G "$VENV/lib/python*/site-packages/innkeeper/_C*.so" >/dev/null &&
    [ "$(cat "$VENV/.innkeeper-package" 2>/dev/null)" = "$(fingerprint)" ]
}

CMAKE_OPTIONS=(-DINNKEEPER_CLI=ON -DINNKEEPER_WERROR=ON)

# compile_core: what needs no PyTorch, in the directory where the package is built afterwards.
compile_core() {
  [ ! -e "$WHEEL_BUILD/CMakeCache.txt" ] || return 0  # only what changed is left to compile
  CXX=$CXX cmake -S . -B "$WHEEL_BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINNKEEPER_TORCH=OFF \
    "${CMAKE_OPTIONS[@]}" >build/core.log || { cat build/core.log; return 1; }
  "$PYTHON" tools/progress.py build/core.log "core, which needs no PyTorch" \
    cmake --build "$WHEEL_BUILD" --target innkeeper_cli -j "$JOBS"
}

# Builds and installs the package. build/wheel is kept, so only what changed is compiled.
package() {
  local inputs
  inputs=$(fingerprint)  # before it is built: what changes meanwhile is built the next time
  rm -f "$VENV/.innkeeper-package"
  CXX=$CXX CMAKE_BUILD_PARALLEL_LEVEL=$JOBS "$PYTHON" tools/progress.py build/package.log "the package" \
    "$VENV_PYTHON" -m pip install --disable-pip-version-check --verbose \
    --no-build-isolation --no-deps --force-reinstall . \
    --config-settings=build-dir="$WHEEL_BUILD" "${CMAKE_OPTIONS[@]/#-D/--config-settings=cmake.define.}" ||
    die "The package did not build; the lines above say why"
  echo "$inputs" >"$VENV/.innkeeper-package"
}

mkdir -p build
exec 9>build/.setup.lock
flock -n 9 || { echo "Waiting for another set-up of this checkout"; flock 9; }
system_packages
optional_packages
virtual_environment
! needs docs || python_packages docs
needs package || exit 0
if up_to_date; then
  python_packages build demo
else
  python_packages build demo &
  fetching=$!
  compile_core || { kill "$fetching" 2>/dev/null || true; die "The package did not build; the lines above say why"; }
  wait "$fetching"
  package
fi
! needs check || python_packages test lint
