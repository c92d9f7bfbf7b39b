"""One round of either side: what it made, when it could be used, what it cost."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from latency_parts.quiet import Neighbours

from ipv_parts.device import DEFINITION, Run
from ipv_parts.feeding import Feed
from ipv_parts.network import Network
from ipv_parts.processes import Cloud, run_part
from ipv_parts.shop import Key
from ipv_parts.topics import Topics
from ipv_parts.watching import Usable, Watcher

_SILENCE_S: Final = 15.0
"""Without a feature for so long, no more come."""


class Outcome(NamedTuple):
    """Of one side."""

    exits: dict[Key, float]
    """When the views ended, monotonic milliseconds."""
    usable: dict[Key, Usable]
    """Features that could be read from their topic."""
    committed: dict[Key, float]
    """When features were durable at the device; empty for the baseline."""
    doubled: int
    """Records beyond one a view."""
    cpu_s: dict[str, float]
    """By side: ``device``, ``cloud``."""
    uplink_bytes: int
    """Of the topic that devices write to."""
    cores: dict[str, float | None]
    """Who had the machine's meanwhile."""


class Bench(NamedTuple):
    """What all rounds share."""

    topics: Topics
    brokers: str
    source: Path
    """Lines of JSON."""
    expected: int
    """Views that end with an exit among the events."""
    events: int
    codec: str = "none"
    linger_ms: int = 0
    form: str = "compact"
    """What features travel as, a tunnel's ``format``."""
    link: str = ""
    """Address by which devices reach the broker, each by a connection of its own where they
    upload raw events; empty for the broker's own."""

    def tunnel(self, topic: str) -> dict[str, Any]:
        """Return keys of the tunnel: what is sent up is sent with these, on either side."""
        return {
            "brokers": [self.link or self.brokers],
            "topic": topic,
            "codec": self.codec,
            "lingerMs": self.linger_ms,
            "format": self.form,
        }


def device_round(bench: Bench, events_per_s: float) -> Outcome:
    """Make features at the device and send them up.

    Args:
        bench: Input and broker.
        events_per_s: How many events happen; 0 for as fast as it goes.
    """
    topic = bench.topics.make("features")
    neighbours = Neighbours()
    with _folder() as folder, Watcher(bench.brokers, topic) as watcher:
        made = run_part("device", _run(bench, topic, folder, events_per_s))
        watcher.wait(bench.expected, _SILENCE_S)
        return Outcome(
            _times(made["exits"]),
            watcher.seen,
            _times(made["committed"]),
            watcher.doubled,
            {"device": made["cpu_s"], "cloud": 0.0},
            bench.topics.size_bytes(topic),
            neighbours.report(),
        )


def baseline_round(bench: Bench, events_per_s: float, network: Network, seed: int) -> Outcome:
    """Send raw events up and make features in the cloud.

    Args:
        bench: Input and broker.
        events_per_s: Number of events in a second.
        network: Faults of the way up for raw events.
        seed: Of what it does.
    """
    raw, features = bench.topics.make("raw"), bench.topics.make("features")
    with (
        _folder() as folder,
        _cloud(bench, raw, features, folder) as baseline,
        Watcher(bench.brokers, features) as watcher,
    ):
        began_cpu_s, neighbours = baseline.cpu_s, Neighbours()
        fed = run_part("feeding", _feed(bench, raw, events_per_s, network, seed))
        watcher.wait(bench.expected, _SILENCE_S)
        cpu_s = baseline.cpu_s - began_cpu_s
        return Outcome(
            _times(fed["exits"]),
            watcher.seen,
            {},
            watcher.doubled,
            {"device": fed["cpu_s"], "cloud": cpu_s},
            bench.topics.size_bytes(raw),
            neighbours.report(),
        )


def baseline_capacity(bench: Bench) -> float:
    """Measure how many raw events a second the baseline works off when all of them wait."""
    raw, features = bench.topics.make("raw"), bench.topics.make("features")
    run_part("feeding", _feed(bench, raw, 0.0, Network(), 1))
    with _folder() as folder, Watcher(bench.brokers, features) as watcher:
        with _cloud(bench, raw, features, folder):
            watcher.wait(bench.expected, 4 * _SILENCE_S)
        times = sorted(each.at_ms for each in watcher.seen.values())
    # from a tenth on: it starts with empty tables and imports
    first = len(times) // 10
    share = (len(times) - 1 - first) / bench.expected
    return bench.events * share * 1e3 / (times[-1] - times[first])


def merging_cpu_s(bench: Bench) -> float:
    """Measure the CPU seconds that ``walle cloud`` takes to merge all features into its table."""
    raw, topic = bench.topics.make("raw"), bench.topics.make("features")
    with _folder() as folder, _cloud(bench, raw, topic, folder, is_baseline=False) as cloud:
        began_cpu_s = cloud.cpu_s
        made = run_part("device", _run(bench, topic, folder, 0.0))
        cloud.wait_for(made["features"])
        return cloud.cpu_s - began_cpu_s


def raw_bytes(bench: Bench) -> int:
    """Send all raw events as fast as it goes, and return the bytes of their topic.

    Args:
        bench: Input and broker, codec and linger.
    """
    raw = bench.topics.make("raw")
    run_part("feeding", _feed(bench, raw, 0.0, Network(), 1))
    return bench.topics.size_bytes(raw)


def _run(bench: Bench, topic: str, folder: Path, events_per_s: float) -> Run:
    return Run(
        source=str(bench.source),
        events=bench.events,
        tunnel=bench.tunnel(topic),
        data_dir=str(folder / "d"),
        out="",
        events_per_s=events_per_s,
        is_linked=bool(bench.link),
    )


def _feed(bench: Bench, raw: str, events_per_s: float, network: Network, seed: int) -> Feed:
    return Feed(
        source=str(bench.source),
        events=bench.events,
        tunnel=bench.tunnel(raw),
        out="",
        events_per_s=events_per_s,
        is_linked=bool(bench.link),
        has_own_clients=bool(bench.link),
        network=network,
        seed=seed,
    )


def _cloud(
    bench: Bench, raw: str, features: str, folder: Path, *, is_baseline: bool = True
) -> Cloud:
    overrides = [
        f"metadata.name=b-{raw}",
        f"spec.tunnel.brokers={bench.brokers}",
        f"spec.tunnel.topic={features}",
        f"spec.source.brokers={bench.brokers}",
        f"spec.source.topic={raw}",
    ]
    return Cloud(DEFINITION, overrides, folder / "cloud", _free_port(), is_baseline=is_baseline)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as name:
        yield Path(name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _times(rows: list[list[Any]]) -> dict[Key, float]:
    # an exit that arrived twice counts when it arrived first
    times: dict[Key, float] = {}
    for device, instance, at_ms in rows:
        times.setdefault((device, instance), at_ms)
    return times
