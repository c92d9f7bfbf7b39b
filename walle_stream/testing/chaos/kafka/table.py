"""Results that must not differ: every feature, and the cloud side's row of each device.

The cloud's table is read by look-ups, and it keeps all features. So a missing, repeated, changed or
misplaced feature is a line that differs.
"""

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_stream.app.queries.query import features_records
from walle_stream.errors import ChaosError

KEPT: Final = 10_000
"""Value of ``--keep`` for the cloud side: enough for all features of a device and task."""

_ANSWER_S: Final = 10.0
_NOT_FOUND: Final = 404


class _Feature(msgspec.Struct):
    sequence_number: int
    task_version: str
    feature: msgspec.Raw
    encoding: str


class _Incarnation(msgspec.Struct):
    last_number: int
    features: int


class _Row(msgspec.Struct):
    device_id: str
    incarnations: list[_Incarnation]
    gaps: int
    tasks: dict[str, list[_Feature]]


def table_lines(address: str, devices: Iterable[str]) -> dict[str, list[bytes]] | None:
    """Read the cloud's table; blocks.

    Args:
        address: ``host:port`` of the look-ups.
        devices: All devices of the input.

    Returns:
        Lines of ``features`` and ``devices``; None if the server does not answer now.

    Raises:
        ChaosError: A look-up is refused.
    """
    features: list[bytes] = []
    rows: list[bytes] = []
    for device in sorted(devices):
        try:
            row = _look_up(address, device)
        except OSError:
            return None
        if row is None:
            continue
        # a look-up lists features newest first, in the order in which they were merged
        found = [(name, each) for name, kept in row.tasks.items() for each in reversed(kept)]
        for task, each in sorted(found, key=lambda pair: pair[1].sequence_number):
            features.append(
                _line(
                    device,
                    task,
                    each.task_version,
                    each.sequence_number,
                    bytes(each.feature),
                    each.encoding,
                )
            )
        rows.append(
            _device_line(
                device,
                sum(each.features for each in row.incarnations),
                [each.last_number for each in row.incarnations],
                row.gaps,
            )
        )
    return {"devices": rows, "features": features}


def reference_lines(data_dir: Path) -> Mapping[str, Sequence[bytes]]:
    """Return the lines of ``table_lines`` for a run without a broker."""
    features: list[bytes] = []
    numbers: dict[str, list[int]] = {}
    records = features_records(data_dir)
    for each in sorted(records, key=lambda record: (record.device_id, record.sequence_number)):
        numbers.setdefault(each.device_id, []).append(each.sequence_number)
        features.append(
            _line(
                each.device_id,
                each.task,
                each.task_version,
                each.sequence_number,
                each.feature,
                b64encode(each.encoding).decode(),
            )
        )
    rows = [
        _device_line(device, len(seen), [max(seen)], 0) for device, seen in sorted(numbers.items())
    ]
    return {"devices": rows, "features": features}


def _look_up(address: str, device: str) -> _Row | None:
    try:
        with urllib.request.urlopen(
            f"http://{address}/features/{device}", timeout=_ANSWER_S
        ) as answer:
            return msgspec.json.decode(answer.read(), type=_Row)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode(errors="replace")
        if error.code == _NOT_FOUND:
            return None
        if error.code < 500:  # noqa: PLR2004 - HTTP: not the server's fault
            raise ChaosError(f"a look-up of {device!r} is refused: {said}") from error
        raise


def _line(
    device: str, task: str, version: str, number: int, feature: bytes, encoding: str
) -> bytes:
    head = json.dumps([device, task, version, number, encoding]).encode()
    return head + b" " + feature


def _device_line(device: str, count: int, last: Sequence[int], gaps: int) -> bytes:
    shown: dict[str, Any] = {"device": device, "features": count, "last": list(last), "gaps": gaps}
    return json.dumps(shown).encode()
