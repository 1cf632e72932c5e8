#!/usr/bin/env bash
# What runs on the managed device to the CPU's bits: models of transformers, timm and diffusers, scripts of libraries as
# their documentation shows them, PyTorch's own databases; whether other devices are as without the package; and
# docs/compatibility.md of all.
#   PARTS="timm scripts"  these parts of it (transformers timm diffusers scripts adapters other_devices); the document
#                         has the others as before
#   ONLY='gpt2|vit.*'     models and scripts of these names, and no document      QUICK=1  the same with five models
# An hour and more, so no part of make test. What the libraries need is installed on top of $VENV, in environments of
# their own in build/compat. Where it cannot be had this says so; QUICK=1 does without.
source "$(dirname "$0")/common.sh"
OUT=build/compat
ONLY=${ONLY:-${QUICK:+gpt2|bert|vit|lcnet_035|DiTTransformer2DModel}}
PARTS=${PARTS:-transformers timm diffusers $([ -n "${QUICK:-}" ] || echo scripts adapters other_devices)}
mkdir -p "$OUT"

site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# environment NAME: with the packages of pyproject.toml's group compat-NAME, and all that $VENV has.
environment() {
  local directory=$OUT/$1 below wanted
  below=$(site_of "$VENV_PYTHON")
  wanted=$("$VENV_PYTHON" tools/needs.py "compat-$1")
  [ "$(cat "$directory/.needs" 2>/dev/null)" != "$below $wanted" ] || return 0
  echo "Installing ${wanted//$'\n'/ } into $directory"
  rm -rf "$directory"
  "$VENV_PYTHON" -m venv "$directory"
  echo "$below" >"$(site_of "$directory/bin/python")/below.pth"
  "$VENV_PYTHON" -c 'import importlib.metadata as found; print("torch==" + found.version("torch"))' \
    >"$OUT/constraints.txt"
  "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --no-compile \
    --constraint "$OUT/constraints.txt" --requirement /dev/stdin <<<"$wanted" 2>"$OUT/pip.log" ||
    { echo "not tried, for want of packages: $(tail -n 1 "$OUT/pip.log")"; return 1; }
  echo "$below $wanted" >"$directory/.needs"
}

# part NAME: into $OUT/NAME.json. Fails where something is not the CPU's.
part() {
  local python=$VENV_PYTHON packages script=architectures words=("$1") found=(--json "$OUT/$1.json")
  case $1 in
    transformers) packages= ;;
    timm | diffusers) packages=models ;;
    scripts) packages=scripts script=scripts words=() ;;
    adapters) packages=oldest script=adapters words=() ;;
    other_devices) packages="" script=other_devices words=() ;;
    *) die "$1 is no part; they are transformers, timm, diffusers, scripts, adapters and other_devices" ;;
  esac
  header "$1"
  if [ -n "$packages" ]; then
    environment "$packages" || { [ -n "${QUICK:-}" ]; return; }
    python=$OUT/$packages/bin/python
  fi
  [ -z "$ONLY" ] || found=("$([ "$1" = other_devices ] && echo -k || echo --only)" "$ONLY")
  "$python" "tests/compat/$script.py" "${words[@]}" "${found[@]}"
}

status=0
for name in $PARTS; do
  part "$name" || status=1
done
if [ -z "$ONLY" ]; then
  "$VENV_PYTHON" tests/compat/page.py "$OUT" docs/compatibility.md
fi
exit "$status"
