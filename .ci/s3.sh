#!/usr/bin/env bash
# Prepare this machine for the tests against S3: build versitygw with Go (some minutes) if it is missing.
# Keeps it in WALLE_CI_CACHE, or in the user's cache, and prints its path. A second run only prints.
set -eu
version=v1.8.0
cache=${WALLE_CI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walle}/versitygw-$version
if command -v versitygw; then exit 0; fi
if [ ! -x "$cache/versitygw" ]; then
    command -v go >/dev/null 2>&1 || { echo "neither versitygw nor go on this machine: install one of them" >&2; exit 1; }
    log=$(mktemp)
    if ! GOFLAGS=-mod=mod GOBIN="$cache" go install "github.com/versity/versitygw/cmd/versitygw@$version" \
        >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
fi
echo "$cache/versitygw"
