"""A device's summary of its receipts, so that a service sends only missing ones."""

from typing import Annotated, Final

import msgspec

from walle_deploy.model.receipts import AHEAD_MS

RENEWED_MS: Final = 3 * 86_400_000
"""Age from which a device gets a new receipt."""

HOUR_MS: Final = 3_600_000
"""Resolution of a receipt's age in a profile."""
_FEW: Final = msgspec.Meta(max_length=32)


class HeldReceipt(msgspec.Struct, frozen=True, array_like=True):
    """Summary of one receipt, in place of the receipt itself."""

    hour: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """``issued_ms`` // ``HOUR_MS``; 0 if the device has no receipt."""
    release: Annotated[str, msgspec.Meta(max_length=128)] = ""
    group: Annotated[str, msgspec.Meta(max_length=16)] = ""


class HeldReceipts(msgspec.Struct, frozen=True, array_like=True):
    """Summary of the receipts for all versions of a device.

    It may be a lie, but then the device lacks receipts, and its reports do not count.
    """

    since_hour: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """Hour of the oldest receipt without a release; 0 if there is none."""
    others: dict[Annotated[str, msgspec.Meta(max_length=128)], HeldReceipt] = {}
    """By task: receipts with a release, and missing receipts."""
    keys: Annotated[list[Annotated[str, msgspec.Meta(max_length=16)]], _FEW] = []
    """Ids of the keys that made the receipts; a restored or other store has other keys."""


def is_fresh(hour: int, now_ms: int) -> bool:
    """Return whether a receipt needs no renewal."""
    return now_ms - RENEWED_MS < (hour + 1) * HOUR_MS and hour * HOUR_MS <= now_ms + AHEAD_MS
