#!/usr/bin/env bash
# Pin the versions of everything but the GPU extras, for all supported Pythons, without any address.
set -eu
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install -q --disable-pip-version-check uv
{
    echo "# Versions of all extras but the GPU ones, for Python 3.13 and 3.14. Made by: make lock"
    .venv/bin/python -m uv pip compile --universal --python-version 3.13 --extra all --upgrade \
        --no-header --no-annotate --no-emit-index-url pyproject.toml
} >requirements.lock.new
mv requirements.lock.new requirements.lock
