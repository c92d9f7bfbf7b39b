"""The demo's runs, with the figures and features that it shows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_stream.app.queries.query import features_lines
from walle_stream.app.report import RunReport

CLICK_STREAM: Final = (
    "shop",
    (
        "spec.source.devices=250",
        "spec.source.sessions=2",
        "spec.source.rate=3000",
        # a device sends its events in order, so nothing waits for late events
        "spec.source.lateEvents=0",
        "spec.sequence.outOfOrder=0s",
    ),
)
"""Shipped definition and overrides: about 33,000 events of 1.1 kB in eleven seconds."""

PEOPLE: Final = ("ipv", ())
"""The sample of KuaiRand: 212 people who watched short videos."""

PAPER_DEVICE_MS: Final = 44.16
"""Walle's mean time to an item page view feature on the device (OSDI 2022, evaluation)."""

PAPER_CLOUD_MS: Final = 33_730.0
"""Mean time to the same feature from a stream processor in the cloud: 33.73 s (same section)."""

_SHOWN: Final = 3
_JOURNEY: Final = range(4, 9)  # numbers of pages for which a session fits on a screen

type Row = Mapping[str, Any]


class DemoFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the screen and the page; times in milliseconds, sizes in bytes."""

    devices: int
    events: int
    features: int
    event_bytes: int
    """Bytes of all events on the devices, uncompressed."""
    packed_bytes: int
    """Bytes of the same events as zstd frames, one for each batch."""
    sent_bytes: int
    """Bytes of all features as sent, compressed."""
    device_ms: float
    """Median time from the end of a page to its committed feature."""
    shown: list[Row]
    """Features of three page views."""
    person: str
    journey: list[Row]
    """Features of one session of a real person, in order."""
    row_bytes: float
    """Mean bytes of a row of the sample of real people."""
    feature_bytes: float
    """Mean bytes of a feature of that sample as sent."""

    @property
    def saving(self) -> float:
        """Share of the compressed bytes that the features save against the events."""
        return 1.0 - self.sent_bytes / max(self.packed_bytes, 1)

    @property
    def page_events(self) -> float:
        """Events for each feature."""
        return self.events / max(self.features, 1)


def figures_of(clicks: RunReport, people: RunReport) -> DemoFigures:
    """Collect the figures of both runs, and features from their data directories; blocks.

    Raises:
        StoreError: A data directory cannot be read.
    """
    rows = [_feature(line) for line in features_lines(Path(clicks.data_dir))]
    sessions: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for line in features_lines(Path(people.data_dir)):
        row = _feature(line)
        sessions[row["device_id"], row["session_index"]].append(row)
    journey = _liveliest(sessions.values())
    counters, their = clicks.counters, people.counters
    return DemoFigures(
        devices=counters.devices,
        events=counters.events,
        features=counters.features,
        event_bytes=counters.raw_bytes,
        packed_bytes=clicks.ledger.packed_raw_bytes,
        sent_bytes=counters.uplink_bytes,
        device_ms=clicks.exit_to_commit_ms.p50 or 0.0,
        shown=sorted(rows, key=_interest)[-_SHOWN:][::-1],
        person=journey[0]["device_id"] if journey else "",
        journey=journey,
        row_bytes=their.raw_bytes / max(their.source_rows, 1),
        feature_bytes=their.uplink_bytes / max(their.features, 1),
    )


def _feature(line: bytes) -> Row:
    row: Row = msgspec.json.decode(line)["feature"]
    return row


def _interest(row: Row) -> tuple[Any, ...]:
    acts = row["is_bought"], row["is_in_cart"], row["is_favourite"], len(row["clicks"])
    return (*acts, row["device_id"], row["page_instance"])


def _liveliest(sessions: Iterable[list[Row]]) -> list[Row]:
    fitting = [rows for rows in sessions if len(rows) in _JOURNEY]
    return max(
        fitting,
        key=lambda rows: (sum(len(row["clicks"]) for row in rows), len(rows), rows[0]["device_id"]),
        default=[],
    )
