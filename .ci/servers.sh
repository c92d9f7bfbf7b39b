#!/usr/bin/env bash
# Prepare this machine for the tests that start their own nginx and PostgreSQL: install Debian's packages
# of the missing programs. That needs root and apt. A second run does nothing.
set -eu
PATH=$PATH:/usr/sbin
wanted=()
command -v nginx >/dev/null 2>&1 || wanted+=(nginx-light)
command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || wanted+=(postgresql)
[ "${#wanted[@]}" -gt 0 ] || exit 0
[ "$(id -u)" -eq 0 ] || { echo "no ${wanted[*]} on this machine: run this as root" >&2; exit 1; }
policy=/usr/sbin/policy-rc.d made=
[ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=yes; }
log=$(mktemp)
status=0
# another script may hold apt's lock
apt-get -o DPkg::Lock::Timeout=300 update -q >"$log" 2>&1 || true
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends \
    "${wanted[@]}" >>"$log" 2>&1 || status=$?
[ -z "$made" ] || rm -f "$policy"
[ "$status" -eq 0 ] || tail -n 5 "$log" >&2
rm -f "$log"
exit "$status"
