#!/usr/bin/env bash
# The tests of `make cuda`, on the fake runtime that tools/cuda.sh has put in CUDA's place: cuda_tests.sh 1|2 PYTHON
# PYTEST_ARGS="-k 'test_bits or test_evictions'": only these, less what cannot run here; quotes inside count as a
# shell's.
source "$(dirname "$0")/common.sh"
tier=$1 python=$2
failed=0
declare -a arguments
eval "arguments=(${PYTEST_ARGS:-})"

# suite NAME PYTEST-ARGUMENTS...
suite() {
  echo "-- $1"
  shift
  "$python" -m pytest -q -p no:cacheprovider -p no:warnings --tb=short "$@" "${arguments[@]}" || [ $? = 5 ] || failed=1
}

if [ "$tier" = 1 ]; then
  contract=$OUT/tests/torch_device_contract_test
  if [ -e "$contract" ]; then
    echo "-- what every device is held to"
    LD_PRELOAD=$FAKE_CUDA_KERNELS FAKE_CUDA_GPUS=2 "$contract" --gtest_filter='*Cuda*' --gtest_brief=1 2>&1 |
      sed -n '/^Running main/,$p' || failed=1
  else
    echo "-- what every device is held to: not built without GoogleTest"
  fi
  longer=()
  for name in compiled nccl sweep triton; do longer+=(--ignore "tests/cuda/test_$name.py"); done
  suite "our CUDA part" -n "$JOBS" tests/cuda "${longer[@]}"
  exit "$failed"
fi

# What needs a GPU's speed, its own random numbers, or kernels that are not here (cuDNN, fused attention) is left out.
# By --deselect, since pytest heeds its last -k alone and PYTEST_ARGS may have one.
mapfile -t left_out < <("$python" -m pytest -q -p no:cacheprovider --collect-only tests/gpu \
  -k "overhead or overlap or attention or lstm" |
  sed -n 's/^tests/--deselect=tests/p')
FAKE_CUDA_MEMORY=$((6 << 30)) suite "what make gpu asks of a GPU" tests/gpu "${left_out[@]}"
export INNKEEPER_TEST_ON=cuda FAKE_CUDA_GPUS=2 FAKE_CUDA_MEMORY=$((1 << 30))
suite "known bugs of others, on GPUs" tests/python/autograd/test_known_bugs.py \
  tests/python/device/test_known_bugs_tensors.py
suite "collectives between GPUs" tests/cuda/test_nccl.py
suite "torch.compile, and Triton's kernels" -n "$JOBS" tests/cuda/test_compiled.py tests/cuda/test_triton.py
suite "the n-th call to CUDA fails" tests/cuda/test_sweep.py
if [ -z "${PYTEST_ARGS:-}" ]; then
  echo "-- a walk on GPUs"
  INNKEEPER_SEED=${INNKEEPER_SEED:-1} INNKEEPER_STEPS=${INNKEEPER_STEPS:-1500} "$python" -W ignore \
    tests/support/python/walk.py | tail -n 12 || failed=1
fi
exit "$failed"
