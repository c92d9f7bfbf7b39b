"""One life of a pipeline over Kafka: its processes, its faults, its end.

Hosts and workers of the cloud side run while the feed writes; a process that ends is restarted.
When the feed is done, no more faults are injected. The hosts are stopped and then run to the
topic's end, until the source is done and no frame waits. The cloud side runs until it has no lag.
Then its table is read. A drain longer than ``DRAIN_S`` is a finding that names the processes.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from time import sleep
from typing import Final

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.errors import WalleError
from walle_stream.testing.chaos.kafka.feed import Feed, Line, expect_lines
from walle_stream.testing.chaos.kafka.members import Member
from walle_stream.testing.chaos.kafka.place import Place
from walle_stream.testing.chaos.kafka.standing import Standing
from walle_stream.testing.chaos.kafka.table import table_lines
from walle_stream.testing.chaos.targets import RunEnd

DRAIN_S: Final = 240.0
"""Longest time from the last record of the input to the last feature in the table."""

TABLE: Final = "table.json"
"""File of the cloud's table in the folder of a finished life."""

STEADY: Final = 2
"""Number of hosts that always run; one more host comes and goes."""

_LOOK_S: Final = 0.02
_ASK_MS: Final = 300.0
_HURRY_S: Final = 60.0
_AWAY_MS: Final = 2_000.0
_CLOUD_SESSION_MS: Final = 10_000.0  # the broker's session timeout for a worker
_VISIT_MS: Final = (4_000.0, 12_000.0)
_TEXT_MAX: Final = 600
_BEGUN_SHARE: Final = 0.95


class LifeParts(msgspec.Struct, frozen=True):
    """Parts of a life."""

    place: Place
    hosts: Sequence[Member]
    """Hosts, the steady ones first."""
    clouds: Sequence[Member]
    """Workers of the cloud side; look-ups go to the first."""
    sender: Member
    """The process that sends messages to devices."""
    feed: Feed
    standing: Standing
    """Progress of the hosts' partitions."""
    events: str
    """Topic of the input."""
    features: str
    """Topic of the tunnel's uplink."""
    messages: str
    """Topic of the tunnel's downlink."""
    group: str
    """Consumer group of the cloud side."""
    web: str
    """``host:port`` of the look-ups."""
    lines: Sequence[Line]
    """The input."""
    partitions: int
    folder: Path


class KafkaLife:
    """A started pipeline; implements ``Running``. For one thread."""

    def __init__(self, parts: LifeParts) -> None:
        """Start the processes.

        Args:
            parts: Parts of this life alone, which it closes.
        """
        self._parts = parts
        self._step: Callable[[], None] = self._live
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._drain_ms = 0.0
        self._ask_ms = 0.0
        self._phase = ""
        self._doubled = 0
        self._end: RunEnd | None = None
        self.has_begun = False
        """Whether features have arrived in the tunnel's topic."""
        self._cut_off: set[int] = set()
        self._is_paused = False
        self._faults: dict[str, Callable[[random.Random], bool]] = {
            "host": self._host,
            "cloud": self._cloud,
            "cloud-stop": self._stop_cloud_worker,
            "sender": self._sender,
            "broker": self._broker,
            "stop": self._stop,
            "join": self._join,
            "cut": self._cut,
            "pause": self._pause,
        }
        for cloud in parts.clouds:
            cloud.start()
        for member in (*parts.hosts[:STEADY], parts.sender):
            member.start()

    @property
    def is_live(self) -> bool:
        """Whether features have arrived, and input remains."""
        return self.has_begun and self._step == self._live

    # Calls of the campaign

    def await_life(self, timeout_s: float) -> None:
        """Block until features have arrived; see ``Running``."""
        until_ms = monotonic_ms() + timeout_s * 1000.0
        while not self.has_begun and self._look() is None and monotonic_ms() < until_ms:
            sleep(_LOOK_S)

    def await_end(self, timeout_s: float) -> RunEnd | None:
        """Block until the life is over; see ``Running``.

        Args:
            timeout_s: Longest wait. From a minute on it means that no fault will follow. Then the
                remaining input is written at once, the longest wait is twice ``DRAIN_S``, and a
                timeout is a failed end.
        """
        is_last = timeout_s >= _HURRY_S
        if is_last:
            self._parts.feed.hurry()
            timeout_s = 2 * DRAIN_S
        until_ms = monotonic_ms() + timeout_s * 1000.0
        while (end := self._look()) is None and monotonic_ms() < until_ms:
            sleep(_LOOK_S)
        if end is None and is_last:
            self._end = RunEnd("failed", f"it hangs: {self._shown()}")
        return self._end

    def await_crash(self, timeout_s: float) -> bool:
        """Return False, since no process is armed with a crash point."""
        del timeout_s
        return False

    def kill(self, role: str, pick: int) -> bool:
        """Inject a fault; see ``Running``."""
        if self._look() is not None or not self.is_live:
            return False
        # needs repeatability, not secrecy
        chance = random.Random(pick)  # noqa: S311
        self._phase = ""
        return self._faults[role](chance)

    def phase(self) -> str:
        """Return the phase of the host that was hit last; for other processes, their start."""
        return self._phase

    def close(self) -> None:
        """End feed and processes, and undo all faults; may be called twice."""
        self._parts.feed.close()
        for member in self._members:
            member.close()
        self._mend()

    # Faults; each returns whether it hit a process

    def _host(self, chance: random.Random) -> bool:
        host = self._busy(chance)
        if host is None:
            return False
        self._phase = host.phase()
        return host.kill(chance.uniform(0.0, _AWAY_MS))

    def _cloud(self, chance: random.Random) -> bool:
        cloud = self._ready_cloud(chance)
        if cloud is None:
            return False
        self._phase = "its start"
        return cloud.kill(chance.uniform(0.0, _AWAY_MS))

    def _stop_cloud_worker(self, chance: random.Random) -> bool:
        cloud = self._ready_cloud(chance)
        if cloud is None:
            return False
        cloud.stop()
        self._later(_CLOUD_SESSION_MS + chance.uniform(500.0, 4_000.0), cloud.go_on)
        return True

    def _sender(self, chance: random.Random) -> bool:
        self._phase = "its start"
        return self._parts.sender.kill(chance.uniform(0.0, _AWAY_MS))

    def _ready_cloud(self, chance: random.Random) -> Member | None:
        found = [
            each
            for each in self._parts.clouds
            if each.is_alive and not each.is_stopped and "walle cloud: ready" in each.said()
        ]
        return chance.choice(found) if found else None

    def _broker(self, chance: random.Random) -> bool:
        place = self._parts.place
        if self._is_paused or not place.is_up:
            return False
        self._phase = "its start"
        place.kill()
        self._later(chance.uniform(0.0, _AWAY_MS), place.start)
        return True

    def _pause(self, chance: random.Random) -> bool:
        place = self._parts.place
        if self._is_paused or not place.is_up:
            return False
        self._is_paused = True
        place.pause()
        self._later(chance.uniform(500.0, place.session_ms * 2.0), self._resume)
        return True

    def _stop(self, chance: random.Random) -> bool:
        host = self._busy(chance)
        if host is None:
            return False
        self._phase = host.phase()
        host.stop()
        away_ms = self._parts.place.session_ms + chance.uniform(500.0, 4_000.0)
        self._later(away_ms, host.go_on)
        return True

    def _join(self, chance: random.Random) -> bool:
        visitor = self._parts.hosts[STEADY]
        if visitor.is_wanted or visitor.is_alive:
            return False
        visitor.start()
        self._later(chance.uniform(*_VISIT_MS), visitor.terminate)
        return True

    def _cut(self, chance: random.Random) -> bool:
        host = self._busy(chance)
        index = self._parts.hosts.index(host) if host is not None else -1
        if host is None or index in self._cut_off:
            return False
        self._phase = host.phase()
        self._cut_off.add(index)
        self._parts.place.cut(index)
        away_ms = chance.uniform(500.0, self._parts.place.session_ms + 3_000.0)
        self._later(away_ms, lambda: self._heal(index))
        return True

    def _busy(self, chance: random.Random) -> Member | None:
        found = [each for each in self._parts.hosts if each.is_alive and not each.is_stopped]
        begun = [each for each in found if each.phase()]
        # rarely hit a host that is starting or joining: otherwise there would be no progress
        chosen = begun if chance.random() < _BEGUN_SHARE else found
        return chance.choice(chosen) if chosen else None

    def _later(self, delay_ms: float, action: Callable[[], object]) -> None:
        heappush(self._due, (monotonic_ms() + delay_ms, next(self._order), action))

    def _resume(self) -> None:
        self._is_paused = False
        self._parts.place.resume()

    def _heal(self, index: int) -> None:
        self._cut_off.discard(index)
        self._parts.place.heal(index)

    def _mend(self) -> None:
        # in the order of their times: a broker that was paused and killed is started at last
        while self._due:
            heappop(self._due)[2]()

    # Steps of the life

    @property
    def _members(self) -> Iterable[Member]:
        return (*self._parts.hosts, *self._parts.clouds, self._parts.sender)

    def _look(self) -> RunEnd | None:
        if self._end is not None:
            return self._end
        now_ms = monotonic_ms()
        while self._due and self._due[0][0] <= now_ms:
            heappop(self._due)[2]()
        for member in self._members:
            member.tick()
            if member.failure:
                self._end = RunEnd("failed", member.failure)
                return self._end
        try:
            self._step()
        except WalleError as error:
            self._end = RunEnd("failed", str(error))
        if self._end is None and self._drain_ms and now_ms > self._drain_ms:
            self._end = RunEnd("failed", f"{DRAIN_S:g} s behind its input: {self._shown()}")
        return self._end

    def _live(self) -> None:
        parts = self._parts
        if not self.has_begun and self._may_ask():
            self.has_begun = sum(parts.place.ends(parts.features, parts.partitions) or ()) > 0
        if not parts.feed.is_done:
            return
        if parts.feed.failure is not None:
            self._end = RunEnd("failed", f"the feed failed: {parts.feed.failure!r}")
            return
        self._drain_ms = monotonic_ms() + DRAIN_S * 1000.0
        self._mend()
        for member in (*parts.hosts, parts.sender):
            member.terminate()
        self._step = self._stop_hosts

    def _stop_hosts(self) -> None:
        if not any(each.is_alive for each in (*self._parts.hosts, self._parts.sender)):
            self._step = self._end_source
            self._parts.sender.start(is_bounded=True)
            self._begin_end()

    def _begin_end(self) -> None:
        for host in self._parts.hosts[:STEADY]:
            host.start(is_bounded=True)

    def _end_source(self) -> None:
        parts = self._parts
        if any(each.is_wanted or each.is_alive for each in (*parts.hosts, parts.sender)):
            return
        sent = parts.place.ends(parts.messages, parts.partitions)
        if sent is not None and parts.standing.is_drained(sent):
            self._step = self._merge
        else:
            self._begin_end()

    def _merge(self) -> None:
        parts = self._parts
        if not self._may_ask():
            return
        ends = parts.place.ends(parts.features, parts.partitions)
        if ends is None or ends != parts.place.committed(
            parts.group, parts.features, parts.partitions
        ):
            return
        devices = {line.device.decode() for line in parts.lines}
        found = table_lines(parts.web, devices)
        if found is None:
            return
        self._doubled = expect_lines(parts.place.client, parts.events, parts.lines)
        (parts.folder / TABLE).write_bytes(msgspec.json.encode(found))
        for cloud in parts.clouds:
            cloud.terminate()
        self._step = self._stop_clouds

    def _stop_clouds(self) -> None:
        if not any(each.is_alive for each in self._parts.clouds):
            self._end = RunEnd("done", parts_ended=self._parts_ended())

    def _parts_ended(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for member in self._members:
            for code, times in member.ends.items():
                found[f"{member.name.partition('-')[0]} ended with {code}"] += times
        if self._doubled:
            found["input written twice"] = self._doubled
        if dropped := self._parts.standing.dropped:
            found["messages and replies that came twice"] = dropped
        return found

    def _may_ask(self) -> bool:
        # ask rarely, since each question makes a client
        if monotonic_ms() < self._ask_ms:
            return False
        self._ask_ms = monotonic_ms() + _ASK_MS
        return True

    def _shown(self) -> str:
        parts = self._parts
        states: Mapping[str, str] = {
            each.name: f"{'runs' if each.is_alive else 'ended'}, says "
            f"{each.said()[-_TEXT_MAX:] or 'nothing'!r}"
            for each in self._members
        }
        shown = "; ".join(f"{name} {text}" for name, text in states.items())
        return (
            f"step {self._step.__name__.strip('_')}, input written: {parts.feed.is_done}, "
            f"features by partition {parts.place.ends(parts.features, parts.partitions)}, merged "
            f"{parts.place.committed(parts.group, parts.features, parts.partitions)}, "
            f"{parts.standing}; {shown}"
        )
