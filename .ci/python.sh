#!/usr/bin/env bash
# python.sh setup FOLDER [NAME]: make a virtual environment with the pinned versions, on the Python
#                            NAME if it is installed, else on the newest one.
# python.sh other FOLDER OF: the same on the other supported Python, not that of the environment OF;
#                            if it is missing, print one line and remove FOLDER.
# python.sh oldest FOLDER: numpy and onnx alone on Python 3.12, the oldest for the tensor engine;
#                            if it is missing, print one line and remove FOLDER.
# Nothing happens while FOLDER is up to date. Only the Python, pip and the package index are used.
set -eu
cd "$(dirname "$0")/.."

NEEDS="walle_stream needs Python 3.13 or newer with venv and ensurepip: install python3.14 or python3.13, or uv (which fetches one), and run this again."

real_python() { # print the executable behind a name; a shim may fail, and a Debian Python may lack venv
    command -v "$1" >/dev/null 2>&1 || return 1
    "$1" -c 'import ensurepip, sys, venv; sys.version_info < (3, 13) and sys.exit(1); print(sys._base_executable)' 2>/dev/null
}

find_python() {
    local name
    for name in python3.14 python3.13 python3; do
        real_python "$name" && return 0
    done
    command -v uv >/dev/null 2>&1 || return 1
    uv python find -q --system '>=3.13' 2>/dev/null && return 0
    echo "no Python 3.13 or newer on this machine: uv fetches one" >&2
    uv python install 3.14 >&2 && uv python find -q --system 3.14
}

find_oldest() { # a pyenv shim works only for the selected version
    local name
    for name in python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python; do
        "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null || continue
        "$name" -c 'import sys; print(sys._base_executable)'
        return 0
    done
    command -v uv >/dev/null 2>&1 && uv python find -q --system 3.12 2>/dev/null
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# a moved checkout, other pins or another recipe make the stamp stale; a touched file does not
stamp() { pwd && cat pyproject.toml requirements.lock .ci/python.sh | cksum; }

is_ready() {
    [ -f "$1/ready" ] && [ "$(cat "$1/ready")" = "$(stamp)" ] && "$1/bin/python" -c 'import pip' 2>/dev/null
}

is_reusable() { # made in this checkout, by a Python that still runs and is new enough
    [ -f "$1/ready" ] && [ "$(head -n 1 "$1/ready")" = "$(pwd)" ] &&
        "$1/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null
}

install_into() { # FOLDER PYTHON
    if ! is_reusable "$1"; then
        echo "making $1 with $("$2" --version)"
        rm -rf "$1"
        "$2" -m venv "$1"
    else
        echo "bringing $1 up to date"
    fi
    rm -f "$1/ready"
    "$1/bin/python" -m pip install -q --disable-pip-version-check -c requirements.lock -e '.[dev,ray,kafka,confluent,cloud,cluster,deploy,parquet,onnx,images]'
    # otherwise the first start would compile every module and be slow
    "$1/bin/python" -m compileall -q -j 0 walle_stream connectors deploy "$1/lib" >/dev/null 2>&1 || true
    stamp >"$1/ready"
}

case "${1:-}" in
setup)
    if [ -n "${3:-}" ]; then
        python=$(real_python "$3") || { echo "no $3 on this machine: using another Python" && set -- "$1" "$2"; }
    fi
    [ -z "${3:-}" ] || [ "$(version_of "$2/bin/python")" = "$(version_of "$python")" ] || rm -rf "$2"
    is_ready "$2" && exit 0
    if [ -n "${3:-}" ]; then
        : # use the requested one
    elif is_reusable "$2"; then
        python=$2/bin/python
    elif ! python=$(find_python); then
        echo "$NEEDS" >&2
        exit 1
    fi
    install_into "$2" "$python"
    ;;
other)
    case "$(version_of "$3/bin/python")" in
    3.13) other=3.14 ;;
    *) other=3.13 ;;
    esac
    if ! python=$(real_python "python$other"); then
        rm -rf "$2"
        echo "no python$other on this machine: the tests run on one Python only"
        exit 0
    fi
    is_ready "$2" && [ "$(version_of "$2/bin/python")" = "$other" ] && exit 0
    [ "$(version_of "$2/bin/python" || true)" = "$other" ] || rm -rf "$2"
    install_into "$2" "$python"
    ;;
oldest)
    [ -f "$2/ready" ] && [ "$(cat "$2/ready")" = "$(stamp)" ] && "$2/bin/python" -c 'import numpy' && exit 0
    rm -rf "$2"
    if ! python=$(find_oldest); then
        echo "no python3.12 on this machine: the tensor engine is checked for it, but not run on it"
        exit 0
    fi
    echo "making $2 with $("$python" --version)"
    "$python" -m venv "$2"
    "$2/bin/python" -m pip install -q --disable-pip-version-check -c requirements.lock --only-binary :all: numpy onnx ml_dtypes
    stamp >"$2/ready"
    ;;
*)
    sed -n '2,8s/^# //p' "$0" >&2
    exit 2
    ;;
esac
