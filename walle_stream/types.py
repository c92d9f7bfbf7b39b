"""Small values that every layer shares: identities and placement.

Pure functions of their arguments: the same on every machine, in every process.
"""

from collections.abc import Callable
from hashlib import blake2b

PARTITION_COUNT_DEFAULT = 16
"""Partitions of a data directory when the pipeline does not say."""

HOSTS_MAX = 256
"""Most device hosts of a run; it never has more than partitions."""

DEVICE_ID_MAX_BYTES = 1024
"""Longest device id, in bytes of UTF-8."""

TIME_MAX_MS = 2**53 - 1
"""Latest time of an event, epoch milliseconds; the earliest is 0."""

type UplinkFrame = tuple[int, int, bytes]
"""On its way up: (sending partition, number in its outbox, envelope of ``wire``)."""

type Placing = Callable[[str, int], int]
"""Says in which of how many partitions (≥ 1) a device is; pure, as ``partition_of`` is."""


def partition_of(device_id: str, partition_count: int) -> int:
    """Place a device where neither source nor tunnel has partitions that others know, too.

    Args:
        device_id: The device; not empty, without NUL.
        partition_count: Number of partitions of the data directory, ≥ 1.

    Returns:
        A partition in ``0 .. partition_count - 1``, stable across processes
        (never ``hash()``, which is salted per process).
    """
    digest = blake2b(device_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partition_count


def placing_mark(placing: Placing) -> int:
    """Return what tells one placing from another: 0 of ``partition_of``, else a device's place."""
    return 0 if placing is partition_of else placing("device", 2**31)


def device_id_problem(device_id: object) -> str | None:
    """Say why a value cannot be a device id.

    Args:
        device_id: Any value that a source found in the device's place.

    Returns:
        A short reason, or None when the value is a valid device id: text of
        1 to ``DEVICE_ID_MAX_BYTES`` bytes without NUL.
    """
    if not isinstance(device_id, str):
        return f"the device id is {type(device_id).__name__}, not text"
    if not device_id:
        return "the device id is empty"
    if "\0" in device_id:
        return "the device id contains NUL"
    try:
        size_bytes = len(device_id.encode())
    except UnicodeEncodeError:
        return "the device id is not valid Unicode"
    if size_bytes > DEVICE_ID_MAX_BYTES:
        return f"the device id has {size_bytes} bytes, at most {DEVICE_ID_MAX_BYTES} are allowed"
    return None
