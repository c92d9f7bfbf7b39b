"""The head of a device in a table that keeps only its latest features. Pure.

Every feature counts: ``digests`` chain all features ever merged, in their order. Two tables with
equal digests therefore hold the same features, none lost, doubled or moved, although only the
latest are rows.
"""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, override

import msgspec

from walle_stream.tunnel.receiver import DeviceSeen
from walle_stream.wire.frame import FeatureRecord

INCARNATIONS_MAX: Final = 1_000
"""Maximum incarnations of a device: each stays in its head for ever."""


class DeviceHead(DeviceSeen, array_like=True):
    """State of a device and of its kept features; starts empty."""

    counts: list[int] = msgspec.field(default_factory=list)
    """Numbers of merged features, by generation."""
    digests: list[bytes] = msgspec.field(default_factory=list)
    """Digests of all merged features, by generation: 16 bytes each."""
    gaps: int = 0
    kept: dict[str, int] = msgspec.field(default_factory=dict)

    @override
    def take(self, generation: int, record: FeatureRecord, *, is_gap: bool) -> int:
        if generation == len(self.counts):
            self.counts.append(0)
            self.digests.append(b"")
        self.counts[generation] += 1
        self.digests[generation] = chain_digest(self.digests[generation], record)
        self.gaps += is_gap
        kept = self.kept[record.task] = self.kept.get(record.task, 0) + 1
        return kept


class KeptFeature(msgspec.Struct, array_like=True, gc=False):
    """The row of one feature."""

    task: str
    task_version: str
    feature: bytes
    """JSON."""
    encoding: bytes
    event_time_ms: int


def chain_digest(before: bytes, record: FeatureRecord) -> bytes:
    """Return the digest (16 bytes, blake2b) of all features up to this one, from an empty one."""
    parts = (
        b"%d" % record.sequence_number,
        record.task.encode(),
        record.task_version.encode(),
        b"%d" % record.event_time_ms,
        record.feature,
        record.encoding,
    )
    # with lengths, so that different lists of parts never hash alike
    text = b"".join([b"%d:%b" % (len(part), part) for part in parts])
    return blake2b(before + text, digest_size=16).digest()


def shown(
    device_id: str,
    head: DeviceHead,
    rows: Iterable[tuple[int, int, KeptFeature]],
    keep: int,
    task: str | None,
) -> dict[str, Any]:
    """Return the body of a look-up; features are included unparsed.

    Rows are generation, number and feature, the newest first. ``keep`` limits the features of each
    task. Without ``task`` all tasks are shown.
    """
    tasks: dict[str, list[dict[str, Any]]] = {}
    for generation, number, each in rows:
        of_task = tasks.setdefault(each.task, []) if task in {None, each.task} else None
        if of_task is not None and len(of_task) < keep:
            of_task.append(
                {
                    "incarnation": head.incarnations[generation],
                    "sequence_number": number,
                    "task_version": each.task_version,
                    "event_time_ms": each.event_time_ms,
                    "feature": msgspec.Raw(each.feature),
                    "encoding": b64encode(each.encoding).decode(),
                }
            )
    return {
        "device_id": device_id,
        "incarnations": [
            {
                "incarnation": name,
                "last_number": head.last_numbers[index],
                "features": head.counts[index],
                "digest": head.digests[index].hex(),
            }
            for index, name in enumerate(head.incarnations)
        ],
        "gaps": head.gaps,
        "tasks": tasks,
    }
