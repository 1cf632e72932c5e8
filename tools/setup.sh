#!/usr/bin/env bash
# Makes a checkout ready: system packages, a virtual environment with PyTorch, and the package built into it.
# Does nothing, fast, where nothing has changed. Never touches an environment outside $VENV.
source "$(dirname "$0")/common.sh"
source tools/apt.sh

# Debian package <- how to see that it is there.
missing_packages() {
  local tool
  for tool in g++ cmake ccache; do
    command -v "$tool" >/dev/null || echo "$tool"
  done
  command -v ninja >/dev/null || echo ninja-build
  for tool in clang++ clang-tidy clang-format; do
    [ -n "$(find_tool "$tool")" ] || echo "${tool/++/}"
  done
  header_exists gtest/gtest.h || echo libgtest-dev
  header_exists benchmark/benchmark.h || echo libbenchmark-dev
  header_exists sqlite3.h || echo libsqlite3-dev
  header_exists CLI/CLI.hpp || echo libcli11-dev
  header_exists fmt/format.h || echo libfmt-dev
  header_exists nlohmann/json.hpp || echo nlohmann-json3-dev
  command -v tmux >/dev/null || echo tmux
  if ! command -v "$PYTHON" >/dev/null; then
    echo python3 python3-venv python3-dev
  elif ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    echo python3-venv
  fi
  if command -v "$PYTHON" >/dev/null && ! "$PYTHON" - <<'PY'
import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists())
PY
  then
    echo python3-dev
  fi
}

header_exists() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }

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
  echo "Installing Debian packages: $*"
  if [ -z "${lists_updated:-}" ]; then
    apt_get update || echo "apt-get update failed; trying with the package lists there are" >&2
    lists_updated=yes
  fi
  apt_get install -y --no-install-recommends "$@"
}

# What only some tests need: libFuzzer's runtime, which Debian packages apart from clang, a browser to open the demo's
# page in, and Slurm to submit to. Where they cannot be had those tests are skipped, so this never fails.
optional_packages() {
  local wanted=() package clang
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  clang=$(find_tool clang++)
  [ -z "$clang" ] || fuzzer_runtime_exists "$clang" ||
    wanted+=("libclang-rt-$("$clang" -dumpversion | cut -d. -f1)-dev")
  command -v chromium >/dev/null || wanted+=(chromium)
  command -v chromedriver >/dev/null || wanted+=(chromium-driver)
  daemon_exists slurmctld && daemon_exists slurmd && daemon_exists munged || wanted+=(slurm-wlm)
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
  [ -x "$VENV_PYTHON" ] || "$PYTHON" -m venv "$VENV"
}

# Installs what pyproject.toml lists, and PyTorch unless a usable one is there.
python_packages() {
  local stamp=$VENV/.innkeeper-needs wanted
  wanted=$(cat tools/setup.sh tools/needs.py pyproject.toml | sha256sum)
  [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
  if ! "$VENV_PYTHON" tools/needs.py --torch-usable; then
    echo "Installing PyTorch"
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
  fi
  echo "Installing Python packages"
  "$VENV_PYTHON" tools/needs.py test demo lint build |
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check -r /dev/stdin
  echo "$wanted" >"$stamp"
}

# Builds and installs the package when a file it is made of has changed since the last time. build/wheel is kept,
# so only what changed is compiled.
package() {
  local stamp=$VENV/.innkeeper-package inputs
  inputs=$(pwd
           find src include python cmake docs/innkeeper.1 tests/CMakeLists.txt CMakeLists.txt pyproject.toml README.md tools/setup.sh \
             "$VENV"/lib/python*/site-packages/torch/version.py \
             -type f ! -name '*.pyc' -printf '%p %s %T@\n' | sort)
  inputs=$(sha256sum <<<"$inputs")
  if [ -d "$WHEEL_BUILD" ] && compgen -G "$VENV/lib/python*/site-packages/innkeeper/_C*.so" >/dev/null &&
     [ "$(cat "$stamp" 2>/dev/null)" = "$inputs" ]; then
    return 0
  fi
  echo "Building and installing the package (the first time takes some minutes)"
  CXX=$CXX CMAKE_BUILD_PARALLEL_LEVEL=$JOBS "$VENV_PYTHON" -m pip install --disable-pip-version-check --quiet \
    --no-build-isolation --no-deps --force-reinstall . \
    --config-settings=build-dir="$WHEEL_BUILD" \
    --config-settings=cmake.define.INNKEEPER_TESTS=ON \
    --config-settings=cmake.define.INNKEEPER_CLI=ON \
    --config-settings=cmake.define.INNKEEPER_WERROR=ON ||
    die "The package did not build; the lines above say why"
  echo "$inputs" >"$stamp"
}

mkdir -p build
exec 9>build/.setup.lock
flock -n 9 || { echo "Waiting for another set-up of this checkout"; flock 9; }
system_packages
optional_packages
virtual_environment
python_packages
package
