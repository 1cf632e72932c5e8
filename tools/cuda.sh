#!/usr/bin/env bash
# The CUDA part without a GPU: an unchanged CUDA build of PyTorch on tests/fake_cuda, a runtime of our own in which work
# runs as late as it may (docs/design/fake_cuda.md). It is no GPU and says nothing of speed.
#   TORCH="2.11.0 newest"   these versions of PyTorch (2.11.0)      TIER="1 2"   which tests (both)
#   MODES="late random:7"   when work runs (tier one: late early random:1 random:2 random:3; tier two: late)
#   PYTEST_ARGS="-k bits"   only these tests                        BUILD_ONLY=1 build and stop
#
# PyTorch's wheel (half a gigabyte; none of NVIDIA's other packages) and Triton are fetched once and unpacked into a
# virtual environment of its own under ${XDG_CACHE_HOME:-~/.cache}/innkeeper/cuda, which `make clean` leaves alone.
# Where they cannot be had this says so, and that is no failure.
source "$(dirname "$0")/common.sh"
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/innkeeper/cuda
PYTHON_TAG=py$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$CACHE"

skip() {
  echo "cuda tests skipped: $*"
  exit 0
}

# resolve VERSION: what the registry offers for it; "newest" is its newest.
resolve() {
  local wanted=torch
  [ "$1" = newest ] || wanted="torch==$1"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --dry-run --no-deps --ignore-installed --report - \
    "$wanted" 2>"$CACHE/pip.log" |
    "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["install"][0]["metadata"]["version"].split("+")[0])' \
      2>/dev/null
}

# download DIRECTORY REQUIREMENT...: into an empty directory; says how many bytes.
download() {
  local directory=$1
  shift
  rm -rf "$directory"
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary=:all: \
    --dest "$directory" "$@" 2>"$CACHE/pip.log" || return 1
  echo "fetched $* ($(du -cb "$directory"/* | tail -n 1 | cut -f1) bytes)"
}

# environment VERSION: a virtual environment with that CUDA build of PyTorch, and CUDA's headers beside it. Once.
environment() {
  local version=$1 directory=$CACHE/torch-$1-$PYTHON_TAG wheel=$CACHE/download-$$ cuda
  if [ ! -e "$directory/.complete" ]; then
    rm -rf "$directory"
    "$PYTHON" -m venv "$directory" >"$CACHE/pip.log" || { rm -rf "$directory"; return 1; }
    download "$wheel" "torch==$version" || { rm -rf "$wheel"; return 1; }
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile "$wheel"/*.whl \
      2>"$CACHE/pip.log" || { rm -rf "$wheel" "$directory"; return 1; }
    rm -rf "$wheel"
    touch "$directory/.complete"
  fi
  # Triton's interpreter takes arrays of one element for numbers, which NumPy 2.4 does not any more.
  if ! "$directory/bin/python" -c "import numpy, pytest, sympy, triton, xdist; int(numpy.ones(1))" 2>/dev/null; then
    # shellcheck disable=SC2046
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile pytest pytest-xdist \
      "numpy<2.4" $("$directory/bin/python" tools/cuda_needs.py) 2>"$CACHE/pip.log" || { cat "$CACHE/pip.log"; return 1; }
  fi
  cuda=$("$directory/bin/python" tools/cuda_needs.py --cuda)
  [ -n "$cuda" ] || { echo "PyTorch $version of this registry was built without CUDA"; return 1; }
  HEADERS=$CACHE/headers-$cuda
  if [ ! -e "$HEADERS/.complete" ]; then
    download "$wheel" "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-crt==$cuda.*" || { rm -rf "$wheel"; return 1; }
    rm -rf "$HEADERS"
    mkdir -p "$HEADERS/unpacked"
    for file in "$wheel"/*.whl; do "$PYTHON" -m zipfile -e "$file" "$HEADERS/unpacked" || return 1; done
    mv "$HEADERS"/unpacked/nvidia/*/include "$HEADERS/include" || return 1
    rm -rf "$HEADERS/unpacked" "$wheel"
    touch "$HEADERS/.complete"
  fi
  ENVIRONMENT=$directory
}

# build VERSION: the package, installed apart, since a module in the build tree would find the build's library; the
# fake's libraries; its kernels; where GoogleTest is there, what each device is held to.
build() {
  BUILD=$PWD/build/cuda/$1
  mkdir -p "$BUILD"
  CUDA_HOME=$HEADERS cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINNKEEPER_TORCH=ON \
    -DINNKEEPER_FAKE_CUDA=ON -DINNKEEPER_CLI=OFF -DINNKEEPER_TESTS="$GOOGLETEST" -DINNKEEPER_WERROR="${WERROR:-ON}" \
    -DPython3_EXECUTABLE="$ENVIRONMENT/bin/python" >"$BUILD/configure.log" || { cat "$BUILD/configure.log"; exit 1; }
  cmake --build "$BUILD" --target innkeeper_package fake_cuda_runtime fake_nccl fake_cuda_kernels -j "$JOBS" -- --quiet
  cmake --install "$BUILD" --prefix "$BUILD/site" --component python >/dev/null
  "$PYTHON" tests/fake_cuda/stubs.py "$(echo "$ENVIRONMENT"/lib/python*/site-packages/torch)" \
    "$BUILD"/tests/fake_cuda/lib{fake_cuda_runtime,fake_nccl}.a "$BUILD/fake"
  if [ "$GOOGLETEST" = ON ]; then  # with the fake's libcudart
    cmake --build "$BUILD" --target torch_device_contract_test -j "$JOBS" -- --quiet
  fi
  mkdir -p "$BUILD/site/fake_cuda_kernels-0.dist-info"
  cp tests/fake_cuda/fake_cuda_kernels.py "$BUILD/site/"
  printf 'Metadata-Version: 2.1\nName: fake_cuda_kernels\nVersion: 0\n' >"$BUILD/site/fake_cuda_kernels-0.dist-info/METADATA"
  printf '[torch.backends]\nfake_cuda_kernels = fake_cuda_kernels:load\n' >"$BUILD/site/fake_cuda_kernels-0.dist-info/entry_points.txt"
}

# on_fake MODE COMMAND...: with the fake in CUDA's place.
on_fake() {
  local mode=$1
  shift
  env -u CUDA_VISIBLE_DEVICES FAKE_CUDA_MODE="$mode" FAKE_CUDA_KERNELS="$BUILD/tests/fake_cuda/libfake_cuda_kernels.so" \
    LD_LIBRARY_PATH="$BUILD/fake" PYTHONPATH="$BUILD/site" PYTHONPYCACHEPREFIX="$BUILD/bytecode" OUT="$BUILD" "$@"
}

tests() {
  local mode failed=0
  for mode in $2; do
    header "PyTorch $VERSION, tier $1, $mode"
    on_fake "$mode" tools/cuda_tests.sh "$1" "$ENVIRONMENT/bin/python" || failed=1
  done
  return "$failed"
}

for tool in cmake g++ ninja; do
  command -v "$tool" >/dev/null || die "make cuda needs $tool (make setup installs it)"
done
GOOGLETEST=OFF
if [ -e /usr/include/gtest/gtest.h ]; then GOOGLETEST=ON; fi  # apt install libgtest-dev
failed=0
for wanted in ${TORCH:-2.11.0}; do
  VERSION=$(resolve "$wanted") || true
  if [ -z "$VERSION" ]; then  # without a registry an environment that is there already will do
    [ -e "$CACHE/torch-$wanted-$PYTHON_TAG/.complete" ] || skip "no CUDA build of PyTorch $wanted to be had"
    VERSION=$wanted
  fi
  header "PyTorch $VERSION: environment and build"
  environment "$VERSION" || skip "PyTorch $VERSION: $(tail -n 1 "$CACHE/pip.log")"
  build "$VERSION"
  [ -z "${BUILD_ONLY:-}" ] || continue
  for tier in ${TIER:-1 2}; do
    modes=${MODES:-late early random:1 random:2 random:3}
    [ "$tier" = 1 ] || modes=${MODES:-late}
    tests "$tier" "$modes" || failed=1
  done
done
exit "$failed"
