# Sourced: apt_get, for scripts. It waits, and says so, while somebody else holds one of apt's locks. Debian 12's own
# DPkg::Lock::Timeout would not do: the locks on package lists and on downloads know nothing of it.
APT_WAIT=${APT_WAIT:-1800}  # seconds

apt_get() {
  local complaint said="" until=$((SECONDS + APT_WAIT))
  # 9 is the caller's lock, which a daemon that a package starts would keep.
  until complaint=$(LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" 2>&1 >/dev/null 9>&-); do
    if [[ "$complaint" != *"Could not get lock"* ]] || [ "$SECONDS" -ge "$until" ]; then
      printf '%s\n' "$complaint" >&2
      return 1
    fi
    [ -n "$said" ] || echo "Waiting for another apt-get: $(grep -m 1 'Could not get lock' <<<"$complaint")"
    said=yes
    sleep 1
  done
}
