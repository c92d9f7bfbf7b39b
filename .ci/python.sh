#!/usr/bin/env bash
# python.sh find [3.13|3.14]: print a Python >= 3.13 that really runs (all, or of that version only).
# python.sh setup FOLDER [3.13|3.14]: make a virtual environment with the pinned versions.
set -eu
cd "$(dirname "$0")/.."

works() { # a shim may exist and fail, and Debian's Python may lack venv
    command -v "$1" >/dev/null 2>&1 || return 1
    "$1" -c 'import sys, venv, ensurepip; raise SystemExit(sys.version_info < (3, 13))' >/dev/null 2>&1
}

find_python() {
    for version in ${1:-3.14 3.13}; do
        if works "python$version"; then command -v "python$version"; return 0; fi
    done
    if [ -z "${1:-}" ] && works python3; then command -v python3; return 0; fi
    if command -v uv >/dev/null 2>&1; then
        uv python install -q "${1:-3.14}" >/dev/null 2>&1 && uv python find -q "${1:-3.14}" && return 0
    fi
    return 1
}

case "${1:-}" in
find) find_python "${2:-}" ;;
setup)
    folder=$2
    if ! python=$(find_python "${3:-}"); then
        echo "walle_stream needs Python 3.13 or newer with venv: install python3.14 or python3.13, or uv, and run this again." >&2
        exit 1
    fi
    echo "making $folder with $("$python" --version)"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    "$folder/bin/python" -m pip install -q --disable-pip-version-check -c requirements.lock -e '.[dev]'
    # a first start that compiles every module twice over is slow
    "$folder/bin/python" -m compileall -q walle_stream connectors deploy "$folder/lib" >/dev/null 2>&1 || true
    ;;
*)
    echo "usage: python.sh find|setup FOLDER [VERSION]" >&2
    exit 2
    ;;
esac
