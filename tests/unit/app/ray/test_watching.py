"""What the driver under Ray makes of what hosts tell of partitions that wander."""

from types import SimpleNamespace

import pytest

from walle_stream.app.ray.watching import Watch


def state(phase="reading", read=0, **commits):
    """A host's report; ``p3=5`` says that partition 3 has five commits."""
    statuses = [
        SimpleNamespace(
            number=int(name[1:]),
            counters=SimpleNamespace(commits=count, uplink_frames=0, events=10 * count),
            latencies=None,
        )
        for name, count in commits.items()
    ]
    return SimpleNamespace(
        phase=phase,
        failure=None,
        read_events=read,
        statuses=statuses,
        missing_replies=0,
        logs=[],
        cloud={},
    )


def host(name):
    told = SimpleNamespace(name=name, restarts=0, step="running", commits_came=lambda: None)

    def restart(_why):
        told.restarts += 1

    told.restart = restart
    return told


@pytest.fixture
def run():
    made = Watch("shop", [], is_placed=True)
    made.hosts = [host("host 0"), host("host 1")]
    made.latencies = SimpleNamespace(merge=lambda _latencies: None)
    return made


def test_events_are_those_that_each_process_read(run):
    one, two = run.hosts
    run.take(one, state(read=5, p0=1))
    run.take(two, state(read=7, p1=1))
    one.restart("")
    run.take(one, state(read=2, p0=2))
    assert run.run_events == 14


def test_a_partition_belongs_to_whom_has_it_now(run):
    one, two = run.hosts
    run.take(one, state(p0=3, p3=1))
    run.take(two, state(p0=4))
    assert [run.host_of(number) for number in (0, 1, 3)] == [1, 1, 0]


def test_what_a_host_tells_at_its_end_of_partitions_that_went_does_not_count(run):
    one, two = run.hosts
    run.take(two, state(p0=9))
    run.take(one, state("done", p0=4, p3=1))
    assert [each.counters.commits for each in run.status()] == [9, 1]
    assert run.host_of(0) == 1
