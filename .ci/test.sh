#!/usr/bin/env bash
# All tests that are not slow, four jobs at a time: one after the other they take over half an
# hour, and much of it is waiting for processes that they start. Who is free takes the next job.
#   .ci/test.sh PYTHON OTHER [arguments of pytest]
set -u
py=$1
other=$2
shift 2
set -- --durations=10 --durations-min=2 "$@" # where the quarter of an hour goes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$SECONDS
limit="timeout --kill-after=30 1500" # what hangs is a failure, with what it printed so far

ray="tests/integration/test_ray.py tests/integration/test_ray_bad_input.py \
    tests/integration/test_ray_engine.py tests/integration/test_ray_engine_runs.py \
    tests/integration/test_main_job.py tests/chaos/test_ray_kills.py"
tasks="tests/integration/test_packaged_tasks.py tests/integration/test_task_commands.py \
    tests/integration/test_contained_crashes.py tests/integration/test_vm_policies.py \
    tests/integration/test_on_error.py"
kills="tests/chaos tests/integration/test_ledger.py tests/integration/test_exchange.py \
    tests/integration/test_scripted_faults.py"
kafka_cloud=$(printf 'tests/integration/kafka/test_%s.py ' chaos faust faust_baseline faust_faults faust_tls)
kafka_faults=$(printf 'tests/integration/kafka/test_%s.py ' copies dead_letters ray_pipeline source_kills \
    tunnel_broker tunnel_down)
ignored() { printf -- '--ignore=%s ' "$@"; }
# the longest first; what follows a job's name are arguments of pytest, without spaces in them
jobs=(
    "units: tests/unit tests/conformance"
    "kafka-cloud: $kafka_cloud"
    "ray: $ray"
    "other: (the same tests of VMs, actors and kills on the other Python)"
    "kafka: tests/integration/kafka $(ignored $kafka_cloud $kafka_faults)"
    "kafka-faults: $kafka_faults"
    "kills: $kills --ignore=tests/chaos/test_ray_kills.py"
    "integration: tests/integration $(ignored tests/integration/kafka tests/integration/deploy $ray $tasks $kills)"
    "deploy: tests/integration/deploy"
    "tasks: $tasks"
    "property: tests/property tests/isolation"
)

run_job() {
    local name=${1%%:*} status
    shift
    case $name in
    other)
        [ -x "$other" ] || return 0
        $limit "$other" -m pytest -p no:cacheprovider -m "(vm or actors or chaos) and not slow" "$@"
        ;;
    *)
        # shellcheck disable=SC2086 - a list of arguments
        $limit "$py" -m pytest -p no:cacheprovider -m "not slow" $job_arguments "$@"
        ;;
    esac
    status=$?
    [ "$status" -eq 5 ] && status=0 # a job without tests (-k) is no failure
    return "$status"
}

next_job() { # prints its number
    (
        flock 9
        number=$(cat "$work/next")
        echo $((number + 1)) >"$work/next"
        echo "$number"
    ) 9>"$work/lock"
}

worker() {
    local number name status start
    while number=$(next_job) && [ "$number" -lt "${#jobs[@]}" ]; do
        name=${jobs[$number]%%:*}
        job_arguments=${jobs[$number]#*:}
        start=$SECONDS
        run_job "$name" "$@" >"$work/$name.log" 2>&1
        status=$?
        [ "$status" -eq 0 ] || touch "$work/failed"
        (
            flock 9
            echo "== $name: exit code $status, $((SECONDS - start)) s, from second $((start - began))"
            cat "$work/$name.log"
        ) 9>"$work/print"
    done
}

echo 0 >"$work/next"
for _ in 1 2 3 4; do
    worker "$@" &
done
wait
echo "== all tests: $((SECONDS - began)) s"
[ ! -e "$work/failed" ]
