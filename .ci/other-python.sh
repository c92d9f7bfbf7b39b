#!/usr/bin/env bash
# other-python.sh FOLDER PYTHON: run the tests that touch interpreters, actors and kills on the
# other supported Python too, where there is one.
set -eu
cd "$(dirname "$0")/.."
folder=$1
case "$("$2" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" in
3.13) other=3.14 ;;
*) other=3.13 ;;
esac
if ! .ci/python.sh find "$other" >/dev/null; then
    echo "no python$other on this machine: the vm, actors and chaos tests ran on one Python only"
    exit 0
fi
if [ ! -e "$folder/ready" ] || [ requirements.lock -nt "$folder/ready" ] || [ pyproject.toml -nt "$folder/ready" ]; then
    .ci/python.sh setup "$folder" "$other"
    touch "$folder/ready"
fi
"$folder/bin/python" -m pytest -m "(vm or actors or chaos) and not slow"
