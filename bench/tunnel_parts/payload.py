"""Features of given sizes, and frames of them, as a device would send."""

import json
import random
from typing import Any, Final

from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body

DEVICE: Final = "device-000001"
"""Whose features are sent."""

_INCARNATION: Final = "0123456789abcdef"
_KINDS: Final = ("scroll", "exposure", "click", "favourite", "add_to_cart")


def feature(rng: random.Random, size_bytes: int) -> bytes:
    """Make one: what somebody did on a page, as JSON of exactly this size.

    Args:
        rng: Seeded.
        size_bytes: At least 150.
    """
    made: dict[str, Any] = {
        "item": rng.randrange(10**9),
        "entered_ms": 1_700_000_000_000 + rng.randrange(10**9),
        "stayed_ms": rng.randrange(200_000),
        "actions": [],
        "pad": "",
    }
    missing = size_bytes - len(json.dumps(made))
    while missing > 0:
        action = {
            "kind": rng.choice(_KINDS),
            "after_ms": rng.randrange(200_000),
            "widget": f"{rng.randrange(16**4):04x}",
            "x": round(rng.random(), 4),
        }
        needed = len(json.dumps(action)) + 2
        if needed > missing:
            break
        made["actions"].append(action)
        missing -= needed
    # the first action has no comma before it
    made["pad"] = "x" * (size_bytes - len(json.dumps(made)))
    return json.dumps(made).encode()


def frame(number: int, first: int, features: list[bytes], compression: str = "zstd") -> bytes:
    """Make a frame of a device's features, as the outbox hands it over.

    Args:
        number: Of the frame.
        first: Sequence number of the first feature.
        features: In order.
        compression: Of the outbox.
    """
    records = [
        FeatureRecord(DEVICE, "visits", "1", first + place, each, b"", 1_700_000_000_000)
        for place, each in enumerate(features)
    ]
    body = encode_body(records, compression)
    return encode_uplink(UplinkEnvelope(0, 1, _INCARNATION, number, body))
