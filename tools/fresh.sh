#!/usr/bin/env bash
# Runs a command in a fresh clone of HEAD, on a machine that has nothing of ours: fresh.sh [COMMAND [WORD...]], else
# make test. Its exit status is the command's.
#   As root       in an empty Debian of this machine's release (mmdebstrap), which is gone afterwards. It takes a
#                 minute to make, and make test fills some 8 GB.
#   USER_MODE=1   and where nobody is root: with a home and a virtual environment of its own, and this machine's
#                 packages. Root becomes `nobody` for it.
# How this machine fetches packages is taken along: apt's sources and its options about fetching, pip's settings and
# the directories that these name, certificates, proxies. SOURCES=FILE names other sources for apt, TMPDIR another place
# than /var/tmp, KEEP=1 leaves all behind for a look.
source "$(dirname "$0")/common.sh"
source tools/apt.sh
git rev-parse --git-dir >/dev/null 2>&1 || die "there is nothing to clone: this is no checkout of git"
[ $# -gt 0 ] || set -- make test
[ "$(id -u)" = 0 ] || USER_MODE=1

place=$(mktemp -d "${TMPDIR:-/var/tmp}/innkeeper-fresh.XXXXXX")
# shellcheck disable=SC2329 # the trap calls it
clean_up() {
  if [ -n "${KEEP:-}" ]; then echo "left behind: $place"; else rm -rf --one-file-system "$place"; fi
}
trap clean_up EXIT

# clone DIRECTORY
clone() {
  local changed
  changed=$(git status --porcelain | wc -l)
  [ "$changed" = 0 ] || echo "not committed, and so not in the clone: $changed files (git status)" >&2
  git clone --quiet --no-hardlinks . "$1"
}

# pip_settings HOME: the user's files of settings, for another home.
pip_settings() {
  local file
  for file in .config/pip/pip.conf .pip/pip.conf; do
    [ ! -e "$HOME/$file" ] || install -D -m 644 "$HOME/$file" "$1/$file"
  done
}

# The variables that a command may see there.
variables() {
  compgen -e | grep -E '^(PIP_.*|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|GIT_SSL_CAINFO|TERM|JOBS|PYTEST_ARGS|QUICK|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy)$' |
    while read -r name; do printf '%s\0' "$name=${!name}"; done
}

# Files and directories of this machine that settings of pip or of certificates name; of an index (PEP 503) what stands
# beside it too, since its pages link there.
named_places() {
  { cat /etc/pip.conf "$HOME"/.config/pip/pip.conf "$HOME"/.pip/pip.conf 2>/dev/null
    compgen -e | grep -E '^(PIP_|SSL_CERT_|.*_CA_BUNDLE$|GIT_SSL)' | while read -r name; do echo "${!name}"; done
  } | grep -oE '(^|[ =]|file://)/[^ ]+' | sed -E 's#^([ =]|file://)##; s#/simple/?$##' | sort -u |
    while read -r path; do [ ! -e "$path" ] || echo "$path"; done
}

as_user() {
  local home=$place/home become=() path=$PATH
  clone "$home/innkeeper"
  pip_settings "$home"
  if [ "$(id -u)" = 0 ]; then
    chmod 755 "$place"
    chown -R nobody: "$home"
    become=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
    path=/usr/local/bin:/usr/bin:/bin
  fi
  cd "$home/innkeeper"
  readarray -d '' -t given < <(variables)
  "${become[@]}" env -i HOME="$home" PATH="$path" LANG=C.UTF-8 "${given[@]}" "$@" </dev/null
}

# Mounts go with the name space, and so does every process that the command leaves behind.
in_an_empty_debian() {
  command -v mmdebstrap >/dev/null || { apt_get update && apt_get install --no-install-recommends mmdebstrap; }
  local root=$place/root file sources=${SOURCES:-}
  for file in /etc/apt/sources.list.d/{debian,ubuntu}.sources /etc/apt/sources.list; do
    [ -n "$sources" ] || [ ! -s "$file" ] || sources=$file
  done
  [ -n "$sources" ] || die "apt's sources are not where they were looked for: SOURCES=FILE names them"
  apt-config dump | grep -E '^Acquire::' | grep -v '^Acquire::IndexTargets' >"$place/apt.conf"
  echo "Making an empty $(. /etc/os-release; echo "$PRETTY_NAME")"
  mmdebstrap --quiet --variant=apt --include=ca-certificates,git,make,python3,python3-venv --aptopt="$place/apt.conf" \
    "$(. /etc/os-release; echo "$VERSION_CODENAME")" "$root" "$sources"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"  # no package starts a daemon
  chmod 755 "$root/usr/sbin/policy-rc.d"
  for file in /etc/pip.conf /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cp "$file" "$root/etc/"; done
  cp -r /etc/ssl "$root/etc/"
  [ ! -d /usr/local/share/ca-certificates ] || cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
  pip_settings "$root/root"
  clone "$root/root/innkeeper"
  readarray -d '' -t given < <(variables)
  readarray -t named < <(named_places)
  # shellcheck disable=SC2016 # the inner shell expands its variables
  unshare --mount --pid --fork --kill-child -- bash -c '
    set -euo pipefail
    root=$1 count=$2 named=("${@:3:$2}")
    shift $((2 + count))
    mount -t proc proc "$root/proc"
    for directory in sys dev dev/pts; do mount --bind "/$directory" "$root/$directory"; done
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    for path in "${named[@]}"; do
      [ ! -e "$root$path" ] || continue
      if [ -d "$path" ]; then mkdir -p "$root$path"; else install -D /dev/null "$root$path"; fi
      mount --bind -o ro "$path" "$root$path"
    done
    exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
  ' fresh "$root" "${#named[@]}" "${named[@]}" "${given[@]}" \
    bash -c 'cd /root/innkeeper && exec "$@"' fresh "$@" </dev/null
}

status=0
if [ -n "${USER_MODE:-}" ]; then as_user "$@" || status=$?; else in_an_empty_debian "$@" || status=$?; fi
echo "fresh: $* ended with $status"
exit "$status"
