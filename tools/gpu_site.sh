# Sourced by the scripts that want a GPU: the package for the PyTorch that python3 already has, in build/gpu/site.
#   BUILD_ONLY=1   needs a CUDA build of PyTorch, but no GPU
#   BUILT=1        take build/gpu/site as it is: it was made beforehand, on another machine say

# Prints why nothing can run on a GPU here; nothing where it can.
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

# Builds and installs it, unless that was done.
build_site() {
  if [ -n "${BUILT:-}" ]; then
    [ -d build/gpu/site/innkeeper ] || die "BUILT=1: there is no build/gpu/site/innkeeper; BUILD_ONLY=1 make gpu makes it"
    return 0
  fi
  # pip's cmake and ninja lie beside the interpreter.
  PATH="$(dirname "$("$PYTHON" -c 'import sys; print(sys.executable)')"):$PATH"
  for tool in cmake g++ ninja; do
    command -v "$tool" >/dev/null || die "the build needs $tool"
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
}

# with_site COMMAND...: runs it where it can import the package.
with_site() { PYTHONPATH="$PWD/build/gpu/site${PYTHONPATH:+:$PYTHONPATH}" "$@"; }
