"""A cluster with much state, under load: a node dies, and the number of hosts changes."""

import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.cluster.engine import EngineError
from tests.cluster.kit import JOB, Kit
from tests.cluster.nodes import CONTROL, HOME
from tests.cluster.pipeline import (
    LOAD,
    LOAD_FEATURES,
    LOAD_MESSAGES,
    LOADS,
    PARTITIONS,
    write_load,
)
from tests.cluster.services import brokers

_PAD: Final = 100_000
_PER_S: Final = 100
_HOSTS: Final = 3
_WAIT_S: Final = 180.0
_CALM_S: Final = 5.0
_COPIED_S: Final = 10.0
_TIMED_S: Final = 30.0
_DEFAULT_S: Final = 60.0
_CHECK_S: Final = 120.0

type Window = tuple[float, float]


class Load:
    """One load on a kit whose Ray is up. Use once."""

    def __init__(self, kit: Kit, devices: int) -> None:
        """Make topics and the pipeline; nothing runs yet.

        Args:
            kit: Whose.
            devices: Number of devices with 100 kB of state each.
        """
        self._kit, self._devices = kit, devices
        self._jobs = 0
        self._windows: dict[str, Window] = {}
        write_load(kit.folder / JOB, brokers(len(kit.kafka)))
        kit.make_topics(LOADS, LOAD_FEATURES, LOAD_MESSAGES)

    def live(self) -> dict[str, Any]:
        """Return what happened in each window, and the devices whose features are wrong; blocks.

        Raises:
            EngineError: Something hung, or a job failed.
        """
        kit, said = self._kit, self._kit.folder / "load.log"
        numbers = map(str, (self._devices, _PAD, _PER_S))
        command = ("python", f"{HOME}/inside/load_feed.py", LOADS, *numbers)
        feed = kit.nodes.begin(CONTROL, *command, said=said)
        self._begin(standbys=1)
        self._await_copies()
        self._watch("node, one standby", self._lose_node)
        self._end()
        self._begin(standbys=0)
        self._watch("node, no standby", self._lose_node)
        self._scale(2)
        self._watch("2 hosts, 4 hosts, 2 hosts", lambda: (self._scale(4), self._scale(2)))
        self._end()
        # the default is a minute, in which each partition has its turn
        self._time("1h", _TIMED_S)
        self._end()
        self._time("1m", _DEFAULT_S)
        kit.nodes.run(CONTROL, "pkill", "-TERM", "-f", "inside/load_feed.py")
        if feed.wait(_WAIT_S):
            raise EngineError(f"the load failed: {said.read_text()}")
        self._end()
        self._submit("--set", "spec.source.stopAtEnd=true")
        kit.await_report(_WAIT_S, self._job)
        return self._check()

    @property
    def _job(self) -> str:
        return f"load-{self._jobs}"

    def _submit(self, *options: str, hosts: int = _HOSTS) -> None:
        self._jobs += 1
        where = ("--hosts", str(hosts), "--data-dir", "/var/lib/walle/load")
        self._kit.submit(*where, *options, name=self._job, file="load.yaml")

    def _begin(self, standbys: int, hosts: int = _HOSTS, every: str = "2s") -> None:
        began_s = time.time()
        options = ("spec.source.stopAtEnd=false", f"spec.runtime.standbys={standbys}")
        options = (*options, f"spec.state.snapshots.every={every}")
        self._submit(*(each for option in options for each in ("--set", option)), hosts=hosts)
        self._kit.await_hosts(hosts, _WAIT_S, pipeline=LOAD)
        self._await_work(began_s)

    def _time(self, every: str, for_s: float) -> None:
        self._begin(standbys=0, hosts=2, every=every)
        time.sleep(_COPIED_S)  # databases that were opened are tidied up
        self._watch(f"snapshots each {every}", lambda: time.sleep(for_s))

    def _end(self) -> None:
        self._kit.scale(0, LOAD)
        self._kit.await_report(_WAIT_S, self._job)

    def _await_copies(self) -> None:
        # of the whole state: there is a snapshot each two seconds
        self._kit.await_work(time.time(), _WAIT_S, LOAD_FEATURES, self._devices)
        time.sleep(_COPIED_S)
        self._kit.await_hosts(_HOSTS, _WAIT_S, pipeline=LOAD, copies=PARTITIONS)

    def _await_work(self, since_s: float) -> None:
        self._kit.await_work(since_s, _WAIT_S, LOAD_FEATURES)

    def _watch(self, name: str, act: Callable[[], object]) -> None:
        began_s = time.time()
        act()
        self._windows[name] = began_s, time.time()

    def _lose_node(self) -> None:
        kit, victim = self._kit, self._kit.nodes.workers[0]
        kit.nodes.kill(victim)
        time.sleep(_CALM_S)
        self._await_work(time.time())
        kit.nodes.start(victim)
        kit.ray.await_nodes(*kit.everybody)
        kit.await_hosts(_HOSTS, _WAIT_S, pipeline=LOAD)
        self._await_work(time.time())

    def _scale(self, hosts: int) -> None:
        self._kit.scale(hosts, LOAD)
        self._kit.await_hosts(hosts, _WAIT_S, pipeline=LOAD)
        time.sleep(_CALM_S)

    def _check(self) -> dict[str, Any]:
        windows = json.dumps(list(self._windows.values()))
        command = ("python", f"{HOME}/inside/load_check.py", LOADS, LOAD_FEATURES, windows)
        done = self._kit.nodes.run(CONTROL, *command, check=False, timeout_s=_CHECK_S)
        if not done.stdout.startswith("{"):
            raise EngineError(f"nothing was checked: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "windows": dict(zip(self._windows, found["windows"], strict=True))}
