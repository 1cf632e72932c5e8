#!/usr/bin/env bash
# The tests that need a GPU, with the PyTorch that python3 already has: no network, no environment of our own,
# no compiler cache. Where there is no such GPU it says why, and that is no failure.
#   OUT=FOLDER         where the figures go (else build/gpu)
#   PYTEST_ARGS="-k 'test_bits or test_room'"   only these tests; quotes inside count as a shell's
#   BUILD_ONLY=1       build and stop; needs a CUDA build of PyTorch, but no card
source "$(dirname "$0")/common.sh"

# Prints why not; nothing where the tests can run.
obstacle() {
  "$PYTHON" - "${BUILD_ONLY:-}" <<'PY'
import importlib.util
import pathlib
import runpy
import sys

if sys.argv[1]:  # without importing it: its libraries want a driver
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        print("no PyTorch")
    elif runpy.run_path(str(pathlib.Path(found.origin).parent / "version.py"))["cuda"] is None:
        print("PyTorch was built without CUDA")
    sys.exit()
try:
    import torch
except Exception as error:
    print(error)
else:
    if torch.version.cuda is None:
        print(f"PyTorch {torch.__version__} was built without CUDA")
    elif not torch.cuda.is_available():
        print("PyTorch finds no CUDA device")
PY
}

reason=$(obstacle)
if [ -n "$reason" ]; then
  echo "gpu tests skipped: $PYTHON: $reason"
  exit 0
fi

# pip's cmake and ninja lie beside the interpreter.
PATH="$(dirname "$("$PYTHON" -c 'import sys; print(sys.executable)')"):$PATH"
for tool in cmake g++ ninja; do
  command -v "$tool" >/dev/null || die "make gpu needs $tool"
done

header "build"
[ -n "${BUILD_ONLY:-}" ] ||
  "$PYTHON" -c 'import torch; print("PyTorch", torch.__version__, "on", torch.cuda.get_device_name(0))'
mkdir -p build/gpu
cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DINNKEEPER_TORCH=ON \
  -DINNKEEPER_CLI=OFF -DPython3_EXECUTABLE="$("$PYTHON" -c 'import sys; print(sys.executable)')" \
  >build/gpu/configure.log || { cat build/gpu/configure.log; exit 1; }
cmake --build build/gpu --target innkeeper_package -j "$JOBS"
cmake --install build/gpu --prefix build/gpu/site --component python >/dev/null
[ -z "${BUILD_ONLY:-}" ] || exit 0

header "tests"
rm -f "${OUT:-build/gpu}/results-cuda.json"
failed=0
eval "arguments=(${PYTEST_ARGS:-})"
PYTHONPATH="$PWD/build/gpu/site${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m pytest tests/gpu "${arguments[@]}" || failed=$?
header "figures, as rows for docs/gpu-results.md"
"$PYTHON" tools/gpu_rows.py "${OUT:-build/gpu}/results-cuda.json" || true
exit "$failed"
