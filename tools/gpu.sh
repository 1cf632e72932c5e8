#!/usr/bin/env bash
# The tests that need a GPU, with the PyTorch that python3 already has: no network, no environment of our own,
# no compiler cache. Where there is no such GPU it says why, and that is no failure.
source "$(dirname "$0")/common.sh"

reason=$("$PYTHON" - <<'PY'
try:
    import torch
except Exception as error:
    print(f"{error}")
else:
    if torch.version.cuda is None:
        print(f"PyTorch {torch.__version__} was built without CUDA")
    elif not torch.cuda.is_available():
        print("PyTorch finds no CUDA device")
PY
)
if [ -n "$reason" ]; then
  echo "gpu tests skipped: $PYTHON: $reason"
  exit 0
fi
if ! compgen -G 'tests/gpu/test_*.py' >/dev/null; then
  echo "gpu tests skipped: there are none in tests/gpu"
  exit 0
fi

"$PYTHON" -c 'import torch; print("PyTorch", torch.__version__, "on", torch.cuda.get_device_name(0))'
header "build"
cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DINNKEEPER_TORCH=ON \
  -DPython3_EXECUTABLE="$("$PYTHON" -c 'import sys; print(sys.executable)')" >build/gpu.configure.log ||
  { cat build/gpu.configure.log; exit 1; }
cmake --build build/gpu --target innkeeper_package -j "$JOBS"
cmake --install build/gpu --prefix build/gpu/site --component python >/dev/null
header "tests"
# shellcheck disable=SC2086
PYTHONPATH="$PWD/build/gpu/site${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m pytest tests/gpu ${PYTEST_ARGS:-}
