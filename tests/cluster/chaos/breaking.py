"""The faults of a campaign: each breaks a cluster, and mends what does not mend itself."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from random import Random
from typing import Final, NamedTuple, Self

from tests.cluster.engine import EngineError
from tests.cluster.faults import cut, full_disk, losing, put_version, skew
from tests.cluster.kit import Kit
from tests.cluster.nodes import HEAD, SMALL_DISK, Nodes
from tests.cluster.services import Service

RECOVERY_S: Final = 120.0
"""A partition that is silent for longer than this hangs: that is a finding."""
REST_S: Final = 180.0
"""A run that does not end within this hangs."""
HOSTS: Final = 3

_LOST: Final = 0.2
_SKEW_S: Final = (60, 600)
_HOSTS: Final = (2, 4)


class Broken(NamedTuple):
    """A cluster that faults happen to."""

    kit: Kit
    drawn: Random
    standbys: int
    hosts: int = HOSTS
    jobs: int = 0

    @property
    def job(self) -> str:
        """Name of the run that was begun last."""
        return f"live-{self.jobs}"

    def begin(self, *options: str) -> Self:
        """Submit a run, which goes on from what others left; returns when it was accepted."""
        begun = self._replace(jobs=self.jobs + 1)
        standbys = ("--set", f"spec.runtime.standbys={self.standbys}")
        # a disk that can be filled
        where = ("--data-dir", f"{SMALL_DISK}/data")
        self.kit.submit("--hosts", str(self.hosts), *standbys, *where, *options, name=begun.job)
        return begun

    def begin_endless(self) -> Self:
        """The same, of a run that goes on behind the topic's end."""
        return self.begin("--set", "spec.source.stopAtEnd=false")


type Break = Callable[[Broken], Broken]
"""Returns when the fault is over; what it leaves behind recovers by itself."""


def _node(broken: Broken, victim: str = "") -> Broken:
    kit, victim, at_s = broken.kit, victim or _victim(broken), time.time()
    kit.nodes.kill(victim)
    kit.await_work(at_s + 1, RECOVERY_S)
    kit.nodes.start(victim)
    return broken


def _skew(broken: Broken) -> Broken:
    victim, drawn = _victim(broken), broken.drawn
    skew(broken.kit.nodes, victim, drawn.choice((-1, 1)) * drawn.randint(*_SKEW_S))
    return _node(broken, victim)


def _meanwhile(
    fault: Callable[[Nodes, str], AbstractContextManager[None]], seconds: float, broken: Broken
) -> Broken:
    with fault(broken.kit.nodes, _victim(broken)):
        time.sleep(seconds)
    return broken


def _host(broken: Broken) -> Broken:
    _kill(broken, broken.drawn.choice(_processes(broken.kit, "HostProcess")))
    return broken


def _supervisor(broken: Broken) -> Broken:
    for each in _processes(broken.kit, "Supervisor"):
        _kill(broken, each)
    return broken


def _scale(broken: Broken) -> Broken:
    least, most = _HOSTS
    others = [number for number in range(least, most + 1) if number != broken.hosts]
    hosts = broken.drawn.choice(others)
    broken.kit.scale(hosts)
    return broken._replace(hosts=hosts)


def _away(
    services: Callable[[Kit], list[Service]], least_s: float, most_s: float, broken: Broken
) -> Broken:
    service = broken.drawn.choice(services(broken.kit))
    service.kill()
    time.sleep(broken.drawn.uniform(least_s, most_s))
    service.start()
    return broken


def _head(broken: Broken) -> Broken:
    kit = broken.kit
    kit.nodes.kill(HEAD)
    kit.nodes.start(HEAD)
    kit.ray.up()
    kit.ray.await_nodes(*kit.everybody)
    return broken.begin_endless()


def _upgrade(broken: Broken) -> Broken:
    kit, version = broken.kit, f"0.1.{broken.jobs}"
    kit.scale(0)
    kit.await_report(REST_S, broken.job)
    for name in kit.nodes.workers:
        put_version(kit.nodes, name, version)
    refused = broken.begin_endless()
    try:
        kit.await_report(REST_S, refused.job)
    except EngineError as error:
        if f"has walle_stream {version}, this process" not in str(error):
            raise
    else:
        raise EngineError(f"nodes with walle_stream {version} were not refused")
    # what was refused is no run that is in the way now
    put_version(kit.nodes, HEAD, version)
    return refused.begin_endless()


BREAKS: Final[dict[str, Break]] = {
    "node": _node,
    "cut": partial(_meanwhile, cut, 10.0),
    "long cut": partial(_meanwhile, cut, 60.0),
    "loss": partial(_meanwhile, partial(losing, share=_LOST), 10.0),
    "disk": partial(_meanwhile, full_disk, 20.0),
    "skew": _skew,
    "host": _host,
    "supervisor": _supervisor,
    "scale": _scale,
    "broker": partial(_away, lambda kit: kit.kafka, 10.0, 20.0),
    "store": partial(_away, lambda kit: [kit.s3], 2.0, 10.0),
    "long store": partial(_away, lambda kit: [kit.s3], 120.0, 120.0),
    "head": _head,
    "upgrade": _upgrade,
}
"""By the names of ``plan.SHARES``."""


def _victim(broken: Broken) -> str:
    # a worker with a host, where there is one: the head's death ends a cluster
    used = {name for name, _ in _processes(broken.kit, "HostProcess")}
    workers = broken.kit.nodes.workers
    return broken.drawn.choice([name for name in workers if name in used] or workers)


def _processes(kit: Kit, actor: str) -> list[tuple[str, str]]:
    # machine and process of each actor of a class
    found = []
    for name in kit.everybody:
        said = kit.nodes.run(name, "pgrep", "-f", f"^ray::{actor}", check=False).stdout
        found += [(name, process) for process in said.split()]
    if not found:
        raise EngineError(f"no process is a {actor}")
    return found


def _kill(broken: Broken, process: tuple[str, str]) -> None:
    name, number = process
    broken.kit.nodes.run(name, "kill", "-KILL", number)
