"""Small values that every layer shares: identities and placement.

The functions are pure: they give the same results on every machine, in every process.
"""

from collections.abc import Callable
from hashlib import blake2b

PARTITION_COUNT_DEFAULT = 16
"""Default number of partitions of a data directory."""

HOSTS_MAX = 256
"""Most device hosts of a run, which never has more hosts than partitions."""

DEVICE_ID_MAX_BYTES = 1024
"""Longest device id, in bytes of UTF-8."""

TIME_MAX_MS = 2**53 - 1
"""Latest time of an event in epoch milliseconds; the earliest is 0."""

type UplinkFrame = tuple[int, int, bytes]
"""A frame on its way up: (sending partition, number in its outbox, envelope of ``wire``)."""

type Placing = Callable[[str, int], int]
"""Returns the partition of a device, given the number of partitions (≥ 1); a pure function,
like ``partition_of``."""


def partition_of(device_id: str, partition_count: int) -> int:
    """Place a device, if neither the source nor the tunnel has its own rule for placing.

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
    """Return a mark of a placing: 0 for ``partition_of``, else a fixed device's partition."""
    return 0 if placing is partition_of else placing("device", 2**31)


def device_id_problem(device_id: object) -> str | None:
    """Return why a value cannot be a device id.

    Args:
        device_id: Any value that a source found in place of a device id.

    Returns:
        A short reason, or None if the value is a valid device id: text of
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
