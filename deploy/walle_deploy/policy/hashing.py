"""The stable hash: the position of a device in the order for shares of all devices.

A device has a 64-bit number, the first 8 bytes of blake2b of its id. A salt has an odd number.
Their product modulo 2**64 is the device's position under that salt. Multiplication by an odd number
permutes the 64-bit numbers, so positions are as even as blake2b makes them. Other salts give other
orders. A share takes the lowest positions, so a device that is in at 5 % is in at 20 %. All of this
is the same for every process, machine and version of Python.
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
    """Return the odd number of a salt, which is any text, such as a release's id."""
    digest = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8, person=b"salt").digest()
    return int.from_bytes(digest, "little") | 1


def share_limit(percent: float) -> int:
    """Return the highest position within a share of 0 to 100 percent, or -1 for none."""
    return min(int(percent * 2.0**64 / 100.0), 2**64) - 1


def is_within(device_hash: int, key: int, limit: int) -> bool:
    """Return whether a device is within a share."""
    return (device_hash * key & MASK) <= limit


def policy_salt(salt: str) -> str:
    """Return the salt of a policy's own share, which differs from that of the gray steps."""
    return f"{salt}/policy"
