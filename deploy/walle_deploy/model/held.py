"""What a device says of the receipts that it holds: so a service sends those that are missing."""

from typing import Annotated, Final

import msgspec

from walle_deploy.model.receipts import AHEAD_MS

RENEWED_MS: Final = 3 * 86_400_000
"""Age from which on a device is given another one."""

HOUR_MS: Final = 3_600_000
"""How fine a device says how old its receipts are."""
_FEW: Final = msgspec.Meta(max_length=32)


class HeldReceipt(msgspec.Struct, frozen=True, array_like=True):
    """What a device says of a receipt that it holds, in place of sending it."""

    hour: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """``issued_ms`` // ``HOUR_MS``; 0: it holds none."""
    release: Annotated[str, msgspec.Meta(max_length=128)] = ""
    group: Annotated[str, msgspec.Meta(max_length=16)] = ""


class HeldReceipts(msgspec.Struct, frozen=True, array_like=True):
    """What a device says of the receipts of all versions that it has.

    All of it may be a lie: a device that holds none has reports that nobody counts.
    """

    since_hour: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """Of the oldest of those that name no release; 0: there are none of these."""
    others: dict[Annotated[str, msgspec.Meta(max_length=128)], HeldReceipt] = {}
    """By task: those that name a release, and where a receipt is missing."""
    keys: Annotated[list[Annotated[str, msgspec.Meta(max_length=16)]], _FEW] = []
    """Ids of the keys that made them: a store that was restored, or another one, has others."""


def is_fresh(hour: int, now_ms: int) -> bool:
    """Return whether a receipt need not be renewed."""
    return now_ms - RENEWED_MS < (hour + 1) * HOUR_MS and hour * HOUR_MS <= now_ms + AHEAD_MS
