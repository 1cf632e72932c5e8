#!/usr/bin/env bash
# Makes docs/screens/ again: what status, top and doctor look like, from the program of build/wheel in tmux, on the fake
# GPUs of the tests. tools/screens.sh [DIRECTORY]; BUILD names another build. tests/cli/test_screens.py compares them.
source "$(dirname "$0")/common.sh"
command -v tmux >/dev/null || die "tmux is not installed"
root=$PWD
build=$(realpath "${BUILD:-build/wheel}")
program=$build/src/cli/innkeeper
[ -x "$program" ] || die "$program is not built: make check"
out=$(realpath -m "${1:-docs/screens}")
mkdir -p "$out"
directory=$(mktemp -d)
socket=innkeeper-screens-$$
leases=$(mktemp -d /dev/shm/innkeeper-screens-XXXX)
chmod 1777 "$leases"

# Sourced by the shells in tmux as well. The process that is started becomes the program.
cat >"$directory/shell" <<SHELL
on_fakes() {
  exec env -u CUDA_VISIBLE_DEVICES -u NO_COLOR INNKEEPER_FAKE_NVML="$directory/gpus" INNKEEPER_LEASE_DIR="$leases" \
    INNKEEPER_NVML="$build/tests/fake_nvml/libnvidia-ml.so.1" LC_ALL=C.UTF-8 PATH="$build/src/cli:$PATH" "\$@"
}
SHELL
# shellcheck source=/dev/null
source "$directory/shell"
jobs_running=()
finish() {
  tmux -L "$socket" kill-server 2>/dev/null || true
  [ ${#jobs_running[@]} = 0 ] || kill "${jobs_running[@]}" 2>/dev/null || true
  wait
  rm -rf "$directory" "$leases"
}
trap finish EXIT

gpu() { # NUMBER USED UTILIZATION WATTS CELSIUS [PROCESS...]
  printf 'gpu GPU-%s000aaaa-0000-0000-0000-000000000000\n bus 00000000:%s1:00.0\n name NVIDIA H200\n' "$1" "$1"
  printf ' memory 139G 512M %s\n utilization %s 0\n power %s 700\n temperature %s\n' "$2" "$3" "$4" "$5"
  shift 5
  while [ $# -gt 0 ]; do
    printf ' process %s\n' "$1"
    shift
  done
}
machine() { # LOAD OF GPU 0
  {
    echo "driver 550.54.15"
    gpu 1 "$1G" $((20 + $1 / 2)) 410 61 "${train:-1} $1G"
    gpu 2 104G 97 655 72 "${whole:-1} 104G"
    gpu 3 12G 31 180 44 "${stranger:-1} 12G"
    gpu 4 0 0 75 30
  } >"$directory/fresh"
  mv "$directory/fresh" "$directory/gpus"
}
lease_count() { (on_fakes innkeeper lease list --json) | grep -c '"id"' || true; }
start() { # OPTIONS -- COMMAND, until its lease is there
  local before
  before=$(lease_count)
  on_fakes innkeeper run "$@" &
  jobs_running+=($!)
  until [ "$(lease_count)" -gt "$before" ]; do
    kill -0 $! || die "no lease for: $*"
    sleep 0.1
  done
}

# Commands that wait and look like jobs.
for name in train finetune; do
  printf '#!/bin/bash\nexec -a "python %s.py" sleep 1000\n' "$name" >"$directory/$name.sh"
  chmod +x "$directory/$name.sh"
done
cd "$directory"
for number in 1 2 3 4; do gpu "$number" 0 0 75 30; done >gpus
command_of() { # RUN: the process of its command, which its keeper has started
  local keeper command
  until keeper=$(pgrep -P "$1") && command=$(pgrep -P "$keeper"); do sleep 0.1; done
  echo "$command"
}
start --mem 60G -- ./train.sh
train=$(command_of "${jobs_running[-1]}")
start -- ./finetune.sh
whole=$(command_of "${jobs_running[-1]}")
(exec -a "python notebook.py" sleep 1000) &
stranger=$!
jobs_running+=("$stranger")
# What train.py's engine shows of itself.
PYTHONPATH=$root/tests/cli python3 - "$leases" "$train" <<'PY' &
import sys, time
from pathlib import Path
from board_file import Board
GIB = 1 << 30
nodes = [("cuda:0", 60, 56, 60, 4213, 981204), ("host", 256, 31, 33, 0, 112)]
text = "".join(f"node={n} {b * GIB} {r * GIB} {p * GIB} {e} {o}\n" for n, b, r, p, e, o in nodes)
Board(Path(sys.argv[1])).add(int(sys.argv[2]), "python train.py 1000", text)
time.sleep(1000)
PY
jobs_running+=($!)
machine 20

pane() { tmux -L "$socket" capture-pane -p; }
shown() { # PATTERN: until the screen has it, and half a second more for the rest
  for _ in $(seq 100); do
    ! pane | grep -q "$1" || break
    sleep 0.2
  done
  sleep 0.5
}
capture() { # NAME WIDTH HEIGHT PATTERN COMMAND
  # The server stays for the next: one that is asked while it leaves is an error.
  tmux -L "$socket" -f /dev/null new-session -d -x "$2" -y "$3" "$5; sleep 1000" \; set-option -s exit-empty off
  shown "$4"
  [ "$1" != top ] || for used in 22 25 31 38 44 51 55 57; do
    machine "$used"
    sleep 1.5
  done
  pane | sed -e "s|$leases|/dev/shm/innkeeper|" -e 's/[[:space:]]*$//' -e :a -e '/^\n*$/{$d;N;ba' -e '}' >"$out/$1.txt"
  tmux -L "$socket" kill-session
}
in_tmux() { printf '. %s/shell; (on_fakes innkeeper %s)' "$directory" "$1"; }
capture top 112 30 notebook.py "$(in_tmux top)"
capture status 110 28 notebook.py "$(in_tmux status)"
capture status_narrow 61 28 note "$(in_tmux status)"
capture doctor 110 16 device-order "$(in_tmux doctor)"
{ # a GPU of another model, one that is lost, and a process without a lease on a leased GPU
  sed -e "s/ process $train .*/&\n process $stranger 2G/" -e 's/512M 57G/512M 59G/' gpus
  gpu 5 0 0 30 28 | sed 's/H200/L4/'
  gpu 6 0 0 30 28
  echo ' lost'
} >fresh
mv fresh gpus
capture doctor_trouble 118 24 CUDA_DEVICE_ORDER "$(in_tmux doctor)"
cd "$out"
echo "made:" *.txt
