"""The device side: events on a schedule, features into the tunnel. A process.

    python -m ipv_parts.device JSON

JSON is a ``Run``.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from latency_parts.commits import Commits
from latency_parts.paced import CONNECTOR, Schedule
from tunnel_parts.network import LinkedModel

from walle_connectors.kafka import CONNECTOR as KAFKA
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions

DEFINITION: Final = Path(__file__).resolve().parents[2] / "configs/ipv-kafka.yaml"


class Run(msgspec.Struct):
    """What to run."""

    source: str
    """Lines of JSON."""
    events: int
    tunnel: dict[str, Any]
    """Keys of the tunnel's connector."""
    data_dir: str
    out: str
    events_per_s: float = 0.0
    """0: as fast as it goes."""
    is_linked: bool = False
    """Whether the broker's address is a link's."""


class _Page(msgspec.Struct):
    device_id: str
    page_instance: str
    cause: str


class LinkedConnector:
    """Kafka's connector for tunnels over a link."""

    name: Final = "kafka over a link"
    tunnel_model: Final = LinkedModel
    open_device = staticmethod(KAFKA.open_device)


LINKED: Final = LinkedConnector()
"""What the YAML names."""


def run_device(asked: Run) -> dict[str, Any]:
    """Run the pipeline in this process; blocks until every feature is acknowledged.

    Returns:
        ``exits``: [device, page instance, monotonic milliseconds at which the exit arrived];
        ``committed``: the same of the commits that have their features; ``cpu_s`` of this
        process meanwhile; ``features`` that were made.
    """
    # the device's own events: there is no fetch in which they would wait for more
    schedule = CONNECTOR.schedule = Schedule(asked.events_per_s, gather_ms=0.0)
    source = {"connector": "latency_parts.paced:CONNECTOR", "path": asked.source}
    connector = "ipv_parts.device:LINKED" if asked.is_linked else "kafka"
    overrides = [
        f"spec.source={json.dumps(source)}",
        f"spec.tunnel={json.dumps({'connector': connector, **asked.tunnel})}",
        "spec.runtime.partitions=1",
    ]
    commits = Commits()
    report = LocalRun(
        Assembly.load(DEFINITION, overrides),
        RunOptions(Path(asked.data_dir), hosts=1, limit=asked.events),
    ).run()
    decode = msgspec.json.Decoder(_Page).decode
    committed = [
        [page.device_id, page.page_instance, commit.at_ms]
        for commit in commits.made
        for page in map(decode, commit.features)
        if page.cause == "exit"
    ]
    return {
        "exits": [[*key, at_ms] for key, at_ms in schedule.exits.items()],
        "committed": committed,
        "cpu_s": (schedule.clocks[-1][1] - schedule.clocks[0][1]) / 1e3,
        "features": report.counters.features,
    }


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Run)
    Path(given.out).write_text(json.dumps(run_device(given)))
