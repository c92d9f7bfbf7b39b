"""Actions of a supervisor, over a Ray whose actors answer at once."""

from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace

import pytest

from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.cluster import run as cluster_run
from walle_stream.app.cluster.run import NAMESPACE, ClusterRun
from walle_stream.app.options import RunOptions
from walle_stream.app.ray import actors
from walle_stream.app.ray.host import HostState
from walle_stream.errors import SourceChangedError, StoreCorruptedError, StoreUnreachableError
from walle_stream.reading.assigned import Assignment
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters

PARTITIONS = 6


class DeadError(Exception):
    """Stands for Ray's error of a dead actor."""


class Host:
    """A host that does at once what it is told; partitions end when the test says so."""

    def __init__(self, ray, name):
        self.ray, self.name = ray, name
        self.assignment, self.warm = Assignment(), frozenset()
        self.state_of = HostState(node=name)
        self.is_ended = self.is_alive = True
        self.is_silent = False

    def __getattr__(self, method):
        return SimpleNamespace(remote=lambda *given: self.ray.called(self, method, given))

    def answer(self, method, given):
        state = self.state_of
        if method == "hello":
            return 17, {}
        if method == "open":
            return {}, []
        if method == "place":
            self.assignment.place(*given)
            held = self.assignment.held
            self.assignment.tell(placed=held.wanted, is_ended=False)
        elif method == "keep_warm":
            (self.warm,) = given
        elif method == "remember":
            state.size = max(state.size, *given)
        elif method in {"finish", "stop"}:
            state.phase = "done"
        elif method == "state":
            if self.is_ended and self.ray.has_ended:
                self.assignment.tell(is_ended=True)
            state.held, state.warm = self.assignment.held, self.warm
            state.statuses = [status(n) for n in sorted(state.held.placed.numbers)]
            return state
        return None


def status(number):
    return PartitionStatus(
        number=number, counters=Counters(events=10, commits=1), latencies=Latencies(),
        active_devices=0, outbox_bytes=0, watermark_ms=-1, run_events=0, ledger=Ledger(),
    )  # fmt: skip


class Ray:
    """As much of Ray as a run uses."""

    def __init__(self):
        self.exceptions = SimpleNamespace(
            RayActorError=DeadError, RayTaskError=KeyError, RayError=LookupError
        )
        self.util = SimpleNamespace(list_named_actors=self._list)
        self.hosts, self.answers, self.refs = {}, {}, count()
        self.asked = {}
        self.has_ended = False
        self.without_room = set()
        self.options = []

    def _list(self, *, all_namespaces):
        assert all_namespaces
        others = [{"namespace": "other", "name": "shop/host-9.0"}]
        return others + [{"namespace": NAMESPACE, "name": name} for name in self.hosts]

    def put(self, value):
        return value

    def remote(self, _kind):
        def make(**options):
            self.options.append(options)
            return SimpleNamespace(remote=lambda *_: self._made(options["name"]))

        return SimpleNamespace(options=make)

    def _made(self, name):
        assert name not in self.hosts
        self.hosts[name] = Host(self, name)
        self.hosts[name].is_silent = name in self.without_room
        return self.hosts[name]

    def get_actor(self, name, namespace):
        assert namespace == NAMESPACE
        if name not in self.hosts:
            raise ValueError(name)
        return self.hosts[name]

    def kill(self, host, *, no_restart=True):
        assert no_restart
        host.is_alive = False
        self.hosts.pop(host.name, None)

    def called(self, host, method, given):
        ref = next(self.refs)
        self.asked[ref] = host
        self.answers[ref] = DeadError() if not host.is_alive else host.answer(method, given)
        return ref

    def wait(self, refs, *, num_returns, timeout):
        assert num_returns == 1
        assert timeout > 0
        ready = sorted(ref for ref in refs if not self.asked[ref].is_silent)[:1]
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref):
        answer = self.answers.pop(ref)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def ray(monkeypatch):
    monkeypatch.setattr(actors, "POLL_MS", 0.0)
    gauges = SimpleNamespace(tell=lambda _ask: None)
    monkeypatch.setattr(cluster_run, "RayGauges", lambda: gauges)
    monkeypatch.setattr(cluster_run, "versions_here", dict)
    monkeypatch.setattr(cluster_run, "_PAUSE_S", 0.001)
    return Ray()


@pytest.fixture
def make(ray):
    def make(hosts=2, *, is_placed=False, standbys=0):
        spec = SimpleNamespace(standbys=standbys, host_cpus=0.5, memory_bytes=None)
        assembly = SimpleNamespace(
            name="shop", task_names=["t"], partition_count=PARTITIONS, is_placed=is_placed,
            runtime_spec=spec, is_whole=False,
        )  # fmt: skip
        return ClusterRun(ray, assembly, RunOptions(Path("d"), hosts))

    return make


def turns(run, number=60):
    for _ in range(number):
        run._turn()


def owned(ray):
    return {
        name: sorted(host.assignment.held.placed.numbers)
        for name, host in sorted(ray.hosts.items())
    }


def test_hosts_are_named_detached_and_spread_and_share_all_partitions(ray, make):
    run = make(2)
    turns(run)
    found = owned(ray)
    assert list(found) == ["shop/host-0.0", "shop/host-1.0"]
    assert sorted(chain(*found.values())) == list(range(PARTITIONS))
    assert {len(numbers) for numbers in found.values()} == {3}
    wanted = {"lifetime": "detached", "scheduling_strategy": "SPREAD", "num_cpus": 0.5}
    assert ray.options[0].items() >= (wanted | {"max_restarts": 0}).items()
    assert [each.host for each in run.told().partitions] != [-1] * PARTITIONS


def test_a_dead_host_has_its_partitions_taken_over_and_is_started_again(ray, make):
    run = make(2)
    turns(run)
    ray.kill(ray.hosts["shop/host-1.0"])
    turns(run)
    found = owned(ray)
    assert list(found) == ["shop/host-0.0", "shop/host-1.1"]
    assert sorted(chain(*found.values())) == list(range(PARTITIONS))
    generations = [host.assignment.held.wanted.generation for host in ray.hosts.values()]
    assert len(set(generations)) == 2
    assert run.told().hosts[1].restarts == 1


def test_the_next_supervisor_finds_hosts_and_how_many_there_are_to_be(ray, make):
    run = make(2)
    turns(run)
    assert run.scale(3) == 3
    turns(run)
    before = owned(ray)
    ray.kill(ray.hosts["shop/host-2.0"])  # with the supervisor, on one node
    again = make(2)
    turns(again)
    found = owned(ray)
    assert list(found) == ["shop/host-0.0", "shop/host-1.0", "shop/host-2.0"]
    assert sorted(chain(*found.values())) == list(range(PARTITIONS))
    assert set(before["shop/host-0.0"]) <= set(found["shop/host-0.0"])


def test_the_next_supervisor_moves_nothing_before_it_has_heard_every_host(ray, make):
    turns(make(3))
    before = owned(ray)
    silent = ray.hosts["shop/host-1.0"]
    silent.is_silent = True
    again = make(2)
    turns(again)
    assert owned(ray) == before
    silent.is_silent = False
    turns(again)
    assert list(owned(ray)) == list(before)  # nor was one started
    assert owned(ray) == before


def test_a_host_that_says_nothing_is_not_waited_for_for_ever(ray, make, monkeypatch):
    turns(make(3))
    ray.hosts["shop/host-1.0"].is_silent = True
    monkeypatch.setattr(cluster_run, "_HEARD_MS", 0.0)
    turns(make(3))
    others = [owned(ray)[f"shop/host-{index}.0"] for index in (0, 2)]
    assert sorted(chain(*others)) == list(range(PARTITIONS))


def test_fewer_hosts_leave_when_others_have_their_partitions_and_come_back(ray, make):
    run = make(3)
    turns(run)
    run.scale(1)
    turns(run)
    assert owned(ray)["shop/host-0.0"] == list(range(PARTITIONS))
    assert [host.step for host in run.watch.hosts] == ["running", "done", "done"]
    assert run.scale(99) == PARTITIONS
    run.scale(2)
    turns(run)
    assert sorted(map(len, owned(ray).values())) == [3, 3]  # the third one's process has ended


def test_a_group_places_by_itself(ray, make):
    run = make(2, is_placed=True)
    turns(run)
    assert owned(ray) == {"shop/host-0.0": [], "shop/host-1.0": []}
    run.scale(1)
    turns(run)
    assert run.watch.hosts[1].step == "done"


def test_standbys_are_told_what_to_keep_warm(ray, make):
    run = make(3, standbys=1)
    turns(run)
    for name, host in ray.hosts.items():
        others = set(range(PARTITIONS)) - set(owned(ray)[name])
        assert host.warm <= others
    assert sum(len(host.warm) for host in ray.hosts.values()) == PARTITIONS


def test_it_ends_with_the_source_and_leaves_no_host(ray, make):
    run = make(2)
    turns(run)
    ray.has_ended = True
    turns(run)
    assert [host.step for host in run.watch.hosts] == ["done", "done"]


@pytest.mark.parametrize("is_placed", [False, True])
@pytest.mark.parametrize("how", ["stop", "scale"])
def test_a_host_without_room_is_given_up_where_it_is_not_needed(ray, make, how, is_placed):
    ray.without_room = {"shop/host-1.0"}
    run = make(2, is_placed=is_placed)
    turns(run)
    assert not run._is_over
    if how == "stop":
        run.stop("SIGTERM")
    else:
        run.scale(1)
    turns(run)
    assert run.watch.hosts[1].step == "done"
    assert run._is_over is (how == "stop")
    assert "shop/host-1.0" not in ray.hosts


def test_a_run_that_has_all_does_not_wait_for_a_host_without_room(ray, make):
    ray.without_room = {"shop/host-1.0"}
    run = make(2)
    turns(run)
    ray.has_ended = True
    turns(run)
    assert run._is_over


def test_a_run_does_not_end_with_what_another_supervisor_left_alone(ray, make):
    turns(make(2))
    # the supervisor dies, and a host; the other one had been told to stop
    ray.kill(ray.hosts["shop/host-1.0"])
    ray.hosts["shop/host-0.0"].state_of.phase = "done"
    again = make(2)
    for _ in range(60):
        again._turn()
        assert not again._is_over
    assert sorted(chain(*owned(ray).values())) == list(range(PARTITIONS))
    ray.has_ended = True
    turns(again)
    assert again._is_over


def test_a_stop_ends_every_host(ray, make):
    run = make(2)
    turns(run)
    run.stop("SIGTERM")
    run.stop("SIGINT")
    turns(run)
    assert [host.step for host in run.watch.hosts] == ["done", "done"]
    assert run._stopped_by == "SIGTERM"


def test_a_host_that_fails_is_started_again_unless_it_fails_for_good(ray, make):
    run = make(1)
    turns(run)
    for life, failure in enumerate((StoreUnreachableError("away"), StoreCorruptedError("damaged"))):
        ray.hosts[f"shop/host-0.{life}"].state_of.failure = failure
        turns(run)
        assert list(owned(ray)) == [f"shop/host-0.{life + 1}"]
    ray.hosts["shop/host-0.2"].state_of.failure = SourceChangedError("another one")
    with pytest.raises(SourceChangedError):
        run.run()
    assert ray.hosts == {}
