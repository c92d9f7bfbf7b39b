"""The faults of a campaign: each breaks a cluster, and mends what does not mend itself."""

import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from tests.cluster.engine import EngineError
from tests.cluster.faults import cut, losing
from tests.cluster.kit import Kit

RECOVERY_S: Final = 120.0
"""A partition that is silent for longer than this hangs: that is a finding."""
HOSTS: Final = 3

_CUT_S: Final = 10.0
_LONG_CUT_S: Final = 60.0
_LOST: Final = 0.2
_STORE_S: Final = (2.0, 10.0)
_HOSTS: Final = (2, 4)


class Broken(NamedTuple):
    """A cluster that faults happen to."""

    kit: Kit
    drawn: Random
    hosts: int = HOSTS


type Break = Callable[[Broken], Broken]
"""Returns when the fault is over; what it leaves behind recovers by itself."""


def _node(broken: Broken) -> Broken:
    kit, victim, at_s = broken.kit, _victim(broken), time.time()
    kit.nodes.kill(victim)
    kit.await_work(at_s + 1, RECOVERY_S)
    kit.nodes.start(victim)
    return broken


def _cut(broken: Broken) -> Broken:
    with cut(broken.kit.nodes, _victim(broken)):
        time.sleep(_CUT_S)
    return broken


def _long_cut(broken: Broken) -> Broken:
    with cut(broken.kit.nodes, _victim(broken)):
        time.sleep(_LONG_CUT_S)
    return broken


def _loss(broken: Broken) -> Broken:
    with losing(broken.kit.nodes, _victim(broken), _LOST):
        time.sleep(_CUT_S)
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


def _store(broken: Broken) -> Broken:
    broken.kit.s3.kill()
    time.sleep(broken.drawn.uniform(*_STORE_S))
    broken.kit.s3.start()
    return broken


BREAKS: Final[dict[str, Break]] = {
    "node": _node,
    "cut": _cut,
    "long cut": _long_cut,
    "loss": _loss,
    "host": _host,
    "supervisor": _supervisor,
    "scale": _scale,
    "store": _store,
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
