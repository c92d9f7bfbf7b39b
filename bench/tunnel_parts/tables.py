"""The tables of a result of the tunnel: for the terminal and ``bench/results``."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any, Final

from vm_parts.tables import Table, bars_table

from tunnel_parts.bars import PAPER

_PLACE: Final = itemgetter("link", "transport", "way")
_LINKS: Final = ("loopback", "50 ms", "phone")


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables of the parts that ran.

    Args:
        result: Of a run, see ``bench/tunnel.py``.
    """
    if result["bars"]:
        yield bars_table(result["bars"])
    if "warm" in result:
        yield _paper(result)
        yield from _warm(result)
    if "cold" in result:
        yield _cold(result)
        if result["handshake"]:
            yield _handshake(result)
    if "throughput" in result:
        yield _throughput(result)
        yield _linger(result)
    yield _quiet(result)


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return (_LINKS.index(row["link"]), row["transport"], row["way"])


def _paper(result: dict[str, Any]) -> Table:
    transport = result["listeners"][-1]
    rows = []
    for each in PAPER:
        row = [f"{each.size / 1e3:g} KB", each.said]
        for link in _LINKS:
            for found in result["warm"]:
                wanted = {"way": "up", "who": "ours", "transport": transport}
                wanted |= {"link": link, "size": each.size}
                if wanted.items() <= found.items():
                    row.append(f"{found['acked_ms']['mean']:.1f}, {found['acked_ms']['p99']:.1f}")
        rows.append(tuple(row))
    return Table(
        f"The paper's uploads beside ours (warm, {transport}, acknowledged; mean and p99, ms)",
        ("size", "the paper", "loopback", "50 ms of round trip", "the same, jitter, 1 % loss"),
        rows,
        "The paper measured real phones on real networks and does not say how; ours are one "
        "machine and a link in user space. They stand beside each other, not against.",
    )


def _warm(result: dict[str, Any]) -> Iterator[Table]:
    rows = sorted(result["warm"], key=_place)
    for (link, transport, way), group in groupby(rows, _PLACE):
        by_size: dict[int, dict[str, dict[str, Any]]] = {}
        for each in group:
            by_size.setdefault(each["size"], {})[each["who"]] = each
        shown = []
        for size, found in sorted(by_size.items()):
            ours, bare = found["ours"], found["bare"]
            cells = [f"{size / 1e3:g} KB"]
            for clock in ("received_ms", "acked_ms"):
                for name in ("p50", "p99"):
                    a, b = ours[clock][name], bare[clock][name]
                    cells.append(f"{a:.1f} ({b:.1f}, {a / b:.2f})")
            shown.append((*cells, f"{ours['received_ms']['count']}"))
        yield Table(
            f"{way.capitalize()}, {transport}, {link}: a record alone, ms (bare client, ratio)",
            ("size", "received p50", "p99", "acknowledged p50", "p99", "records"),
            shown,
            _NOTES.get((link, way), ""),
        )


_NOTES: Final = {
    ("loopback", "up"): (
        "Sizes are the feature's, before compression. Received: from the call of send until "
        "receive returns it, which is asked every 0.2 ms; bare: until poll returns. The bare "
        "client is kafka-python with the same settings (idempotent, acks=all, codec, linger); "
        "on loopback each record of one is followed by one of the other at random."
    ),
    ("50 ms", "up"): (
        "The link lies between the device and the broker, 25 ms each way; the cloud side is "
        "beside the broker. Records follow each other after 0 to 100 ms, at random. Measurements "
        "over links run beside each other."
    ),
    ("50 ms", "down"): (
        "A device's question for messages waits at the broker, so a message takes half a round "
        "trip; one that comes within half of one behind another takes up to a whole one."
    ),
    ("phone", "up"): (
        "10 ms of jitter each way and 1 % of the segments lost, each of which costs 200 ms: "
        "reported, no bar."
    ),
}


def _cold(result: dict[str, Any]) -> Table:
    rows = []
    keys = ("link", "transport", "way", "who", "state")
    found = sorted(result["cold"], key=lambda each: (_place(each), each["who"], each["state"]))
    sizes = result["sizes"]
    for place, group in groupby(found, itemgetter(*keys)):
        by_size = {each["size"]: each for each in group}
        link, transport, way, who, state = place
        some = by_size[sizes[0]]
        rows.append(
            (
                f"{link}, {transport}, {way}, {who}, {state}",
                *(f"{by_size[size]['ms']['median']:.0f}" for size in sizes),
                str(some["samples"]),
                f"{some['full']}, {some['resumed']}" if some["full"] or some["resumed"] else "",
            )
        )
    return Table(
        "A new client's first record, ms (medians)",
        ("", *(f"{size / 1e3:g} KB" for size in sizes), "of each", "handshakes: whole, resumed"),
        rows,
        "From making the client to the acknowledgement (up) or to the record in hand (down). "
        "Ours asks first whether the broker answers and the topics are there, and says why not, "
        "which the bare client does not. Resumed: the session of the client before is offered. "
        "Handshakes are those of the clients that offer sessions: not the probe's, nor the bare "
        "client's, which resume nothing. A "
        "connection over the link is accepted at once, so one round trip of each is missing. Over "
        "the link up and down run beside each other.",
    )


def _handshake(result: dict[str, Any]) -> Table:
    rows = [
        (
            f"{each['link']}, {each['state']}",
            f"{each['wall_ms']['median']:.2f}",
            f"{each['cpu_ms']['median']:.2f}",
            f"{each['reused']} of {each['samples']}",
        )
        for each in result["handshake"]
    ]
    return Table(
        "One connection with mutual TLS",
        ("", "wall ms", "our CPU ms", "sessions taken"),
        rows,
        "TCP and handshake alone; the broker's work is in the wall clock.",
    )


def _throughput(result: dict[str, Any]) -> Table:
    rows = [
        (
            f"{each['who']}, {each['codec']}",
            f"{each['batch']:,}" if each["who"] == "ours" else "",
            f"{each['records_per_s']:,.0f}",
            f"{each['records_per_cpu_s']:,.0f}",
            f"{each['bytes_per_record']:,.0f}",
        )
        for each in result["throughput"]
    ]
    return Table(
        f"Throughput up over {result['listeners'][-1]}, records of 1.3 KB",
        ("", "records a frame", "records/s", "per CPU-second", "bytes each in the broker"),
        rows,
        "One partition, no linger. CPU: the device's process, frames made before.",
    )


def _linger(result: dict[str, Any]) -> Table:
    rows = [
        (
            f"{each['linger_ms']} ms",
            f"{each['ms']['median']:.1f}",
            f"{each['records_per_s']:,.0f}",
            f"{each['records_per_cpu_s']:,.0f}",
            f"{each['bytes_per_record']:,.0f}",
        )
        for each in result["linger"]
    ]
    return Table(
        "Linger, frames of one record of 1.3 KB, zstd",
        (
            "",
            "alone: acknowledged, ms",
            "flat out: records/s",
            "per CPU-second",
            "bytes each in the broker",
        ),
        rows,
        "While a batch is on its way the next one fills by itself.",
    )


def _quiet(result: dict[str, Any]) -> Table:
    lost = [each["lost_percent"] for each in result["controls"]]
    gaps = [each["largest_gap_ms"] for each in result["controls"]]
    return Table(
        "How quiet the machine was",
        ("", "before", "after"),
        [
            ("time that a loop lost, %", *(f"{each:.2f}" for each in lost)),
            ("at once at most, ms", *(f"{each:.1f}" for each in gaps)),
        ],
        f"A loop that only looks at the clock; {median(lost):.2f} % in the middle.",
    )
