"""Which bars a result of the tunnel meets, and what the paper says beside them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple


class Paper(NamedTuple):
    """A figure of the paper's tunnel."""

    size: int
    ms: float
    said: str


PAPER: Final = (
    Paper(3_000, 250.0, "under 250 ms on average"),
    Paper(30_000, 450.0, "about 450 ms on average"),
)
"""Lv et al., OSDI 2022: uploads of real phones over real networks, by data size."""

_LIMITS_MS: Final = {
    ("loopback", 3_000): 30.0,
    ("loopback", 30_000): 100.0,
    ("50 ms", 3_000): 100.0,
    ("50 ms", 30_000): 150.0,
}
_WHAT: Final = (
    ("up", "received_ms", "up, in the cloud side's table"),
    ("up", "acked_ms", "up, acknowledged"),
    ("down", "received_ms", "down, at the device"),
)


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for: p99 over warm TLS.

    Args:
        result: Of a run, see ``bench/tunnel.py``.

    Returns:
        For each bar ``name``, ``bar``, ``value``, ``met`` and ``note``; none without the
        part ``warm`` over TLS.
    """
    if "warm" not in result or "TLS" not in result["listeners"]:
        return []
    return list(_bars(result))


def _bars(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    note = "a quick look" if result["quick"] else ""
    note = note or ("a trial on a busy machine" if result["trial"] else "")
    for (link, size), limit in _LIMITS_MS.items():
        for way, clock, said in _WHAT:
            found = find_row(result["warm"], way, "ours", "TLS", link, size)
            value = found[clock]["p99"]
            yield {
                "name": f"{size / 1e3:g} KB {said}, warm TLS, {link}, ms (p99)",
                "bar": f"< {limit:g}",
                "value": value,
                "met": value < limit and not note,
                "note": note,
            }


def find_row(
    rows: list[dict[str, Any]], way: str, who: str, transport: str, link: str, size: int
) -> dict[str, Any]:
    """Return the one row of these.

    Args:
        rows: Of the part ``warm``.
        way: ``up`` or ``down``.
        who: ``ours`` or ``bare``.
        transport: ``plain`` or ``TLS``.
        link: Of ``network.LINKS``.
        size: In bytes.
    """
    wanted = {"way": way, "who": who, "transport": transport, "link": link, "size": size}
    (found,) = (each for each in rows if wanted.items() <= each.items())
    return found
