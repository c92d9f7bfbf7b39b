#!/usr/bin/env bash
# Prepare this machine for the tests of clusters: the S3 server of .ci/s3.sh, and the image of a node.
# An ordinary Docker engine builds the image on a public base image. Otherwise the engine of .ci/kafka.sh builds
# it on a base of debootstrap and this machine's Python 3.13. That needs root, and apt if a program is missing,
# but no image registry. A second run does nothing.
# The base image and wheels are kept in WALLE_CI_CACHE, or in the user's cache.
set -eu
cd "$(dirname "$0")/.."
cache=${WALLE_CI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walle}
# a Python can be copied to the same release of the system only
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
base=walle-python:3.13-$suite
tar=$cache/python-3.13-$suite.tar.gz
packages=ca-certificates,iproute2,iptables,libgomp1,openssh-server,procps,rsync,wget
libraries=libbz2-1.0,libffi8,liblzma5,libreadline8,libsqlite3-0,libssl3,libuuid1,zlib1g

# an ordinary engine has the network bridge; the engine of kafka.sh has none and fetches nothing
if docker network inspect bridge >/dev/null 2>&1; then
    .ci/s3.sh >/dev/null
    echo "image $(deploy/ray/image/build)"
    exit 0
fi

python=$(python3.13 -c 'import ensurepip, sys; print(sys._base_executable)' 2>/dev/null) ||
    { echo "no Python 3.13 on this machine" >&2; exit 1; }

install() { # COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 && return
    echo "installing $2"
    # if a package source does not answer, older package lists may suffice
    { apt-get update -q || true; } >/tmp/walle-apt-node.log 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$2" >>/tmp/walle-apt-node.log 2>&1 ||
        { tail -n 5 /tmp/walle-apt-node.log >&2; return 1; }
}

copy_python() { # ROOT: the interpreter, its library and the standard library, without its tests
    local stdlib library
    stdlib=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    library=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
    mkdir -p "$1/usr/local/bin" "$1/usr/local/lib"
    cp "$python" "$1/usr/local/bin/python3.13"
    cp -a "$library"/libpython3.13.so* "$1/usr/local/lib" 2>/dev/null || true
    tar -C "$(dirname "$stdlib")" --exclude=python3.13/{test,site-packages,idlelib,tkinter} --exclude=__pycache__ \
        --exclude='config-3.13*' -c python3.13 | tar -C "$1/usr/local/lib" -x
    chroot "$1" sh -c 'ldconfig && python3.13 -c "import bz2, ctypes, lzma, sqlite3, ssl, zlib, ensurepip"'
}

make_base() { # one tar; it appears whole or not at all
    [ -f "$tar" ] && return
    install debootstrap debootstrap
    mkdir -p "$cache"
    local root
    root=$(mktemp -d)
    echo "making $base with debootstrap"
    if ! { debootstrap --variant=minbase --include="$packages,$libraries" "$suite" "$root" && copy_python "$root"; } \
        >/tmp/walle-debootstrap-node.log 2>&1; then
        tail -n 5 /tmp/walle-debootstrap-node.log >&2
        rm -rf "$root"
        return 1
    fi
    tar -C "$root" --exclude=./var/cache/apt/archives/\*.deb --exclude=./var/lib/apt/lists/\* \
        -c . | gzip -1 >"$tar.new"
    mv "$tar.new" "$tar"
    rm -rf "$root"
}

.ci/kafka.sh
.ci/s3.sh >/dev/null
install ssh-keygen openssh-client
if ! docker image inspect "$base" >/dev/null 2>&1; then
    make_base
    docker import "$tar" "$base" >/dev/null
fi
echo "image $(WALLE_WHEELS=$cache/wheels deploy/ray/image/build "" "$base" "$python")"
