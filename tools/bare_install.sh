#!/usr/bin/env bash
# Installs the package as a stranger does, on a Debian that has python3-venv, python3-dev and g++ alone: `pip install .`
# gives the whole product, or says what to install, and with that it does. tools/fresh.sh tools/bare_install.sh
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv python3-dev g++ >/dev/null
directory=$(mktemp -d)
log=$directory/log
python3 -m venv "$directory/venv"
PATH=$directory/venv/bin:$PATH

if ! pip install . >"$log" 2>&1; then
  packages=$(sed -n 's/^ *Debian, Ubuntu: apt install //p' "$log" | head -n 1)
  [ -n "$packages" ] || { tail -n 80 "$log"; echo "pip install . failed, and does not say what to install"; exit 1; }
  echo "pip install . asks for: $packages"
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $packages >/dev/null
  pip install . >"$log" 2>&1 || { tail -n 80 "$log"; echo "pip install . failed with what it asked for"; exit 1; }
fi
cd "$directory"
innkeeper --version
innkeeper queue list
python -c 'import innkeeper, torch; print(torch.ones(2, device="managed").sum().item(), innkeeper.__version__)'
echo "the whole product is installed"
