#!/usr/bin/env bash
# Pin the versions of all dependencies but the GPU extras, for all supported Pythons, without index addresses.
# lock.sh keeps pins that still fit, lock.sh --upgrade takes the newest versions, lock.sh --check only compares.
set -eu
cd "$(dirname "$0")/.."
.venv/bin/python -m uv --version >/dev/null 2>&1 ||
    .venv/bin/python -m pip install -q --disable-pip-version-check uv
new=$(mktemp)
trap 'rm -f "$new" "$new.in"' EXIT
echo 'ray[default]' >"$new.in" # the nodes of a cluster need it (deploy/ray/image)
case "${1:-}" in
--upgrade) ;;
*) cp requirements.lock "$new" ;; # uv keeps the pins of its output file
esac
.venv/bin/python -m uv pip compile -q --universal --python-version 3.13 --extra all --extra docs \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o "$new" pyproject.toml "$new.in"
sed -i.bak '/^#/d' "$new" && rm -f "$new.bak"
{
    echo "# Versions of all extras but the GPU ones, for Python 3.13 and 3.14. Made by: make lock"
    cat "$new"
} >"$new.lock"
mv "$new.lock" "$new"
if [ "${1:-}" = --check ]; then
    diff requirements.lock "$new" && echo "requirements.lock fits pyproject.toml"
else
    cp "$new" requirements.lock
fi
