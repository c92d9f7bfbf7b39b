#!/usr/bin/env bash
# Prepare this machine for the tests against nginx: Debian's nginx-light, started by the tests alone.
# Needs root and apt where it is missing; what is there stays.
set -eu
PATH=$PATH:/usr/sbin
command -v nginx >/dev/null 2>&1 && exit 0
[ "$(id -u)" -eq 0 ] || { echo "not root, and no nginx here" >&2; exit 1; }
policy=/usr/sbin/policy-rc.d made=
[ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=yes; }
status=0
# another preparation may hold apt's lock
apt-get -o DPkg::Lock::Timeout=300 update -q >/tmp/walle-apt-nginx.log 2>&1 || true
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends \
    nginx-light >>/tmp/walle-apt-nginx.log 2>&1 || status=$?
[ -z "$made" ] || rm -f "$policy"
[ "$status" -eq 0 ] || { tail -n 5 /tmp/walle-apt-nginx.log >&2; exit "$status"; }
