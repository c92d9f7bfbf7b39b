"""The stable hash: where a device stands in line for a share of all devices.

A device has one 64-bit number, the first 8 bytes of blake2b of its id. A salt has an odd one,
and their product modulo 2**64 is the device's position under that salt: multiplication by an
odd number permutes the 64-bit numbers, so positions are as even as blake2b makes them, and
other salts put the devices in another order. A share takes the lowest positions: whoever is
in at 5 % is in at 20 %. No process, machine or version of Python changes any of it.
"""

from hashlib import blake2b
from typing import Final

MASK: Final = 2**64 - 1
"""The highest position."""


def id_hash(name: str) -> int:
    """Return the 64-bit number of a device or a user."""
    encoded = name.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")


def salt_key(salt: str) -> int:
    """Return the odd number of a salt: any text, such as a release's id."""
    digest = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8, person=b"salt").digest()
    return int.from_bytes(digest, "little") | 1


def share_limit(percent: float) -> int:
    """Return the highest position within a share of 0 to 100 percent, -1 for none."""
    return min(int(percent * 2.0**64 / 100.0), 2**64) - 1


def is_within(device_hash: int, key: int, limit: int) -> bool:
    """Tell whether a device is within a share."""
    return (device_hash * key & MASK) <= limit


def policy_salt(salt: str) -> str:
    """Return the salt of a policy's own share: not that of the release's gray steps."""
    return f"{salt}/policy"
