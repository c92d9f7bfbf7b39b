"""Payloads of events: the device's status and similar data, which no task reads.

Their content makes sizes realistic. About a quarter of ``payloadBytes`` is the same for all events
of a device (build, screen, experiments). The rest is new with every event: a third of it is
changing readings, the other part random bytes in base64 (a signature and a trace), which no
compressor makes smaller than three quarters. A test checks ``CHANGING_SHARE``.
"""

from base64 import b64encode
from random import Random
from typing import Any, Final

CHANGING_SHARE: Final = 0.6
"""At least this share of a payload differs from event to event or is incompressible."""

_MODELS: Final = ("PX-7", "PX-8 Pro", "Nova 12", "Lite 5G", "Mate 40", "Reno 9")
_EXPERIMENTS: Final = ("rank", "cart", "feed", "search", "price", "badge", "video", "coupon")


def device_part(random: Random, size_bytes: int) -> dict[str, Any]:
    """Return the constant part for a device, about ``size_bytes`` of JSON."""
    part: dict[str, Any] = {
        "model": random.choice(_MODELS),
        "os": f"{random.randint(11, 15)}.{random.randint(0, 6)}.{random.randint(0, 9)}",
        "app": f"9.{random.randint(0, 40)}.{random.randint(0, 9)}",
        "screen": [1080, random.choice((2160, 2340, 2400))],
        "experiments": {},
    }
    # a device with a limit of no bytes has no payload
    experiments = part["experiments"]
    for index in range(max(size_bytes - 100, 0) // 10):
        name = f"{_EXPERIMENTS[index % len(_EXPERIMENTS)]}{index // len(_EXPERIMENTS)}"
        experiments[name] = random.randint(0, 9)
    return part


def event_part(random: Random, size_bytes: int) -> dict[str, Any]:
    """Return the new part for an event, about ``size_bytes`` of JSON."""
    readings = size_bytes // 3
    noise = max(size_bytes - readings - 20, 0)
    return {
        "battery": random.randint(5, 100),
        "rssi": -random.randint(40, 99),
        "free_mb": random.randint(200, 6_000),
        "gyro": [random.randint(-99_999, 99_999) for _ in range(max(readings - 50, 0) // 7)],
        "trace": b64encode(random.randbytes(noise * 3 // 4)).decode(),
    }
