"""A supervisor that is started again: hosts are asked by a Ray that is not there."""

from types import SimpleNamespace

import pytest

from walle_stream.app.cluster import run as module
from walle_stream.app.cluster.run import NAMESPACE, ClusterRun
from walle_stream.app.options import RunOptions
from walle_stream.app.ray.host import HostState, Size
from walle_stream.reading.assigned import Held, Placed

HERE = {"Ray": "any"}
COUNT = 8
OWN = [frozenset({0, 3, 6}), frozenset({1, 4, 7}), frozenset({2, 5})]


class Ref:
    def __init__(self, host, value):
        self.host, self.value = host, value


class Host:
    """A host that works on, and that answers when it is allowed to."""

    def __init__(self, numbers, hosts):
        placed = Placed(7, numbers)
        held = Held(placed=placed, wanted=placed, is_ended=False)
        self._state = HostState(held=held, warm=frozenset(range(COUNT)), size=Size(1, hosts))
        self.is_silent = False
        self.told = []

    def __getattr__(self, method):
        return SimpleNamespace(remote=lambda *arguments: self.take(method, *arguments))

    def take(self, method, *arguments):
        self.told.append((method, *arguments))
        answers = {"hello": (1, HERE), "open": ({}, []), "begin": None}
        return Ref(self, self._state if method == "state" else answers.get(method))


class FakeRay:
    exceptions = SimpleNamespace(RayActorError=KeyError, RayTaskError=KeyError, RayError=KeyError)

    def __init__(self, hosts):
        self.hosts = {f"shop/host-{index}.4": host for index, host in enumerate(hosts)}
        self.made = []
        names = [{"namespace": NAMESPACE, "name": name} for name in self.hosts]
        self.util = SimpleNamespace(list_named_actors=lambda **_: names)

    def get_actor(self, name, _namespace):
        return self.hosts[name]

    def put(self, value):
        return value

    def get(self, ref):
        return ref.value

    def wait(self, refs, **_):
        ready = [ref for ref in refs if not ref.host.is_silent]
        return ready[:1], ready[1:]

    def remote(self, _actor):
        def make(*_arguments):
            self.made.append(Host(frozenset(), 0))
            return self.made[-1]

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=make))


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ms=0.0)
    monkeypatch.setattr(module, "monotonic_ms", lambda: now.ms)
    monkeypatch.setattr(module, "versions_here", lambda: HERE)
    monkeypatch.setattr(module, "RayGauges", lambda: SimpleNamespace(tell=lambda _ask: None))
    monkeypatch.setattr("walle_stream.app.ray.actors.POLL_MS", 0.0)
    return now


def begin(ray, hosts):
    runtime = SimpleNamespace(standbys=1, host_cpus=1.0, memory_bytes=1)
    assembly = SimpleNamespace(
        name="shop",
        task_names=[],
        partition_count=COUNT,
        is_placed=False,
        runtime_spec=runtime,
    )
    return ClusterRun(ray, assembly, RunOptions(data_dir="data", hosts=hosts))


def turn(run, times=30):
    for _ in range(times):
        run._turn()


def placed(host):
    return [arguments[1] for method, *arguments in host.told if method == "place"]


def test_nothing_moves_before_all_hosts_have_told_what_they_have(clock):
    hosts = [Host(numbers, 3) for numbers in OWN]
    hosts[1].is_silent = hosts[2].is_silent = True
    run = begin(ray := FakeRay(hosts), 3)
    turn(run)
    assert [placed(host) for host in hosts] == [[], [], []]
    hosts[1].is_silent = hosts[2].is_silent = False
    turn(run)
    assert [placed(host) for host in hosts] == [[], [], []]
    assert not ray.made


def test_a_host_that_says_nothing_is_not_waited_for_for_ever(clock):
    hosts = [Host(numbers, 3) for numbers in OWN]
    hosts[2].is_silent = True
    run = begin(FakeRay(hosts), 3)
    turn(run)
    clock.ms += 11_000
    turn(run)
    assert frozenset.union(*placed(hosts[0])[-1:], *placed(hosts[1])[-1:]) >= OWN[2]


def test_the_number_of_hosts_is_what_they_were_told_last(clock):
    hosts = [Host(frozenset(range(4)), 2), Host(frozenset(range(4, 8)), 2)]
    hosts[1].is_silent = True
    run = begin(ray := FakeRay(hosts), 3)
    turn(run)
    hosts[1].is_silent = False
    turn(run)
    assert not ray.made
    assert [placed(host) for host in hosts] == [[], []]
