#!/usr/bin/env bash
# Prepare this machine for the tests against Apache Kafka: a Docker engine from Debian's packages, a base
# image made with debootstrap, the server's jars through Maven, and the image of deploy/kafka. Needs root
# and apt if something is missing, but no image registry. A second run does nothing.
# The base image and the jars are kept in WALLE_CI_CACHE, or in the user's cache.
set -eu
cd "$(dirname "$0")/.."
cache=${WALLE_CI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walle}
suite=bookworm
base=walle-jre:$suite
tar=$cache/jre-$suite.tar.gz
[ -z "${WALLE_CI_CACHE:-}" ] || export XDG_CACHE_HOME="$WALLE_CI_CACHE/users"

install() { # pairs COMMAND PACKAGE: install the Debian packages of missing commands
    local missing=()
    while [ $# -gt 0 ]; do
        command -v "$1" >/dev/null 2>&1 || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing ${missing[*]}"
    # packages may not start their services: the engine is started below with its own options
    local policy=/usr/sbin/policy-rc.d made=
    [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=yes; }
    local status=0
    # if a package source does not answer, older package lists may suffice
    apt-get update -q >/tmp/walle-apt.log 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" \
        >>/tmp/walle-apt.log 2>&1 || status=$?
    [ -z "$made" ] || rm -f "$policy"
    [ "$status" -eq 0 ] || { tail -n 5 /tmp/walle-apt.log >&2; return "$status"; }
}

answers() { docker info >/dev/null 2>&1; }

start_engine() {
    answers && return
    install docker docker.io dockerd docker.io
    # a killed engine leaves its pid file, and its containerd, which answers no new engine
    local left=/var/run/docker/containerd id
    id=$(cat "$left/containerd.pid" 2>/dev/null || true)
    if [ -n "$id" ] && grep -qs "$left" "/proc/$id/cmdline"; then kill -KILL "$id"; fi
    rm -f /var/run/docker.pid "$left/containerd.pid" "$left"/containerd.sock*
    # without bridge and packet filter: containers use the machine's own loopback
    setsid dockerd --bridge=none --iptables=false --ip6tables=false >/tmp/walle-dockerd.log 2>&1 </dev/null &
    local try
    for ((try = 0; try < 150; try++)); do
        answers && return
        sleep 0.2
    done
    tail -n 5 /tmp/walle-dockerd.log >&2
    echo "the Docker engine does not answer" >&2
    return 1
}

make_base() { # Java on a small Debian, as one tar; it appears whole or not at all
    [ -f "$tar" ] && return
    install debootstrap debootstrap
    mkdir -p "$cache"
    local root
    root=$(mktemp -d)
    echo "making $base with debootstrap"
    if ! debootstrap --variant=minbase --include=openjdk-17-jre-headless,ca-certificates "$suite" "$root" \
        >/tmp/walle-debootstrap.log 2>&1; then
        tail -n 5 /tmp/walle-debootstrap.log >&2
        rm -rf "$root"
        return 1
    fi
    tar -C "$root" --exclude=./var/cache/apt/archives/\*.deb --exclude=./var/lib/apt/lists/\* \
        -c . | gzip -1 >"$tar.new"
    mv "$tar.new" "$tar"
    rm -rf "$root"
}

fetch_jars() {
    install java openjdk-17-jre-headless mvn maven
    deploy/kafka/broker fetch >/dev/null
}

[ "$(id -u)" -eq 0 ] || answers || { echo "not root, and no Docker engine answers" >&2; exit 1; }
install openssl openssl
start_engine
fetch_jars
if ! docker image inspect "$base" >/dev/null 2>&1; then
    make_base
    docker import "$tar" "$base" >/dev/null
fi
echo "image $(deploy/kafka/image "" "$base"), $(docker version --format 'Docker {{.Server.Version}}')"
