#!/usr/bin/env bash
# All tests that are not slow, in three lanes at once: one after the other they take over a
# quarter of an hour, and most of it is waiting for processes that they start.
#   .ci/test.sh PYTHON OTHER [arguments of pytest]
set -u
py=$1
other=$2
shift 2
set -- --durations=25 --durations-min=2 "$@" # where the quarter of an hour goes
log=$(mktemp)
kafka_log=$(mktemp)
trap 'rm -f "$log" "$kafka_log"' EXIT

lane() { # a lane without tests (-k) is no failure
    "$@"
    local status=$?
    [ "$status" -eq 5 ] && status=0
    return "$status"
}

units() {
    lane "$py" -m pytest -m "not slow" tests/unit tests/conformance "$@" || return
    if [ -x "$other" ]; then
        lane "$other" -m pytest -p no:cacheprovider -m "(vm or actors or chaos) and not slow" "$@"
    fi
}

units "$@" >"$log" 2>&1 &
units=$!
lane "$py" -m pytest -p no:cacheprovider -m "not slow" tests/integration/kafka tests/chaos "$@" \
    >"$kafka_log" 2>&1 &
kafka=$!
lane "$py" -m pytest -p no:cacheprovider -m "not slow" \
    tests/integration tests/property --ignore=tests/integration/kafka "$@"
failed=$?
wait $units || failed=1
echo "== the second lane: unit and conformance tests; then the other Python"
cat "$log"
wait $kafka || failed=1
echo "== the third lane: a real Kafka, and kills"
cat "$kafka_log"
[ "$failed" -eq 0 ]
