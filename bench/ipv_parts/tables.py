"""The tables and the figure of ``bench/ipv.py``."""

from collections.abc import Iterator
from math import log10
from statistics import median
from typing import Any, Final

from vm_parts.plot import text_at
from vm_parts.tables import Table, bars_table

from ipv_parts.judging import middle, wrong_share

PAPER: Final = "44.16 ms at the device, 33.73 s in the cloud, 0.7 % of the cloud's features wrong"
"""Walle, OSDI 2022, section 7.2."""

_SIDES: Final = {"device": "at the device", "baseline": "in the cloud (Faust)"}
_SCENES: Final = {
    "clean": "nothing late or lost",
    "faulty": "raw events late, doubled, lost",
    "phone": "over a phone's link",
}
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 860, 250, 150, 56, 34
_LEAST_MS: Final = 0.5
_OURS, _OTHERS = "#2563eb", "#9ca3af"


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables."""
    yield bars_table(result["bars"])
    yield Table(
        "From page exit to a feature, milliseconds; medians of the rounds",
        ("", "committed p50", "p99", "readable in the cloud p50", "p99"),
        list(_latency_rows(result)),
        f"The paper's: {PAPER}. Neither side waits for late events (`outOfOrder: 0s`), and what "
        "devices send does not linger; Faust's producer does, for 3 ms, as a request for each row "
        "of its tables would cost more. The link: 50 ms there and back, up to 10 ms of jitter each "
        f"way, 1 % of segments lost; {_phones(result)}.",
    )
    yield Table(
        "Bytes of the topic that devices write to, as the broker stores them",
        ("batches", "features", "raw events", "features", "share", "a feature's", "were they JSON"),
        list(_byte_rows(result)),
        "The same client, codec, batch size and linger on both sides; envelope, headers and the "
        "128 bytes of encoding are in the features'. Raw events are JSON, features travel as "
        "`format: compact` (MessagePack); last what they would take as JSON. Alone: lone features, "
        "of the rounds over a phone's link.",
    )
    yield Table(
        "Features against the naive truth",
        ("way of the raw events", "where made", "due", "missing", "wrong", "doubled", "share"),
        list(_error_rows(result)),
        f"Declared: {_network(result)}. The cloud waits for no late event: its features would come "
        "later by as much.",
    )
    yield Table(
        "CPU seconds of a round",
        ("", "at the device", "in the cloud", "for each 1,000 events"),
        list(_cost_rows(result)),
        "Merging was measured apart, as fast as it goes, and runs in neither's rounds; the "
        "broker's own time is nowhere. Raw events go up one by one, at once, for the latency "
        "above: in batches they would cost less.",
    )


def _latency_rows(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for scene in ("clean", "phone"):
        for side, name in _SIDES.items():
            rounds = result[scene][side]
            cells = ["", ""]
            if "committed_ms" in rounds[0]:
                cells = [f"{middle(rounds, 'committed_ms', each):.1f}" for each in ("p50", "p99")]
            cells += [f"{middle(rounds, 'usable_ms', each):.1f}" for each in ("p50", "p99")]
            yield (name if scene == "clean" else f"{name}, {_SCENES[scene]}", *cells)


def _byte_rows(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for codec, found in result["bytes"].items():
        device, baseline, features = found["device"], found["baseline"], found["features"]
        yield (
            "plain" if codec == "none" else codec,
            f"{features:,}",
            f"{baseline:,}",
            f"{device:,}",
            f"{device / baseline:.2%}",
            f"{device / features:,.0f} of {baseline / features:,.0f}",
            f"{found['device_json'] / baseline:.2%}",
        )
    # so few features a second that each is a batch of its own, and so is each raw event
    device, baseline = (
        sum(each["uplink_bytes"] for each in result["phone"][side]) for side in _SIDES
    )
    features = sum(each["errors"]["expected"] for each in result["phone"]["device"])
    each = f"{device / features:,.0f} of {baseline / features:,.0f}"
    shown = f"{features:,}", f"{baseline:,}", f"{device:,}", f"{device / baseline:.2%}", each, ""
    yield ("each alone, plain", *shown)


def _error_rows(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for scene, title in _SCENES.items():
        for side, name in _SIDES.items():
            rounds = result[scene][side]
            total = {
                kind: sum(each["errors"][kind] for each in rounds) for kind in rounds[0]["errors"]
            }
            yield (
                title,
                name,
                f"{total['expected']:,}",
                f"{total['missing']:,}",
                f"{total['differing'] + total['beyond']:,}",
                f"{total['doubled']:,}",
                f"{wrong_share(rounds):.2%}",
            )


def _cost_rows(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for side, name in _SIDES.items():
        costs = [each["cpu_s"] for each in result["clean"][side]]
        device, cloud = (median(each[kind] for each in costs) for kind in ("device", "cloud"))
        yield (
            f"features made {name}",
            f"{device:.1f}",
            f"{cloud:.1f}",
            f"{(device + cloud) * 1e3 / result['fed_events']:.2f}",
        )
    spent_s = result["merging_cpu_s"]
    each = spent_s * 1e3 / result["fed_events"]
    yield ("merging them into the cloud's table, either way", "", f"{spent_s:.1f}", f"{each:.2f}")


def _phones(result: dict[str, Any]) -> str:
    phones = result["phones"]
    return (
        f"over it {phones['devices']} devices with {phones['events_per_s']:g} events a second "
        "together, raw events by a connection for each device, features by one for all"
    )


def _network(result: dict[str, Any]) -> str:
    rates = result["network"]
    return (
        f"on their way to the cloud {rates['late']:.1%} of raw events come up to "
        f"{rates['lateness_s']:g} s late by the {rates['clock']}'s clock, {rates['doubled']:.1%} "
        "come twice, "
        f"{rates['lost']:.1%} never; the device sees them as they happen"
    )


def figure(result: dict[str, Any]) -> str:
    """Draw latencies from p50 to p99, on a logarithmic axis.

    Returns:
        SVG text.
    """
    clean = result["clean"]
    rows = [
        ("device: committed", clean["device"], "committed_ms", _OURS),
        ("device: readable in the cloud", clean["device"], "usable_ms", _OURS),
        ("cloud (Faust): readable", clean["baseline"], "usable_ms", _OTHERS),
    ]
    found = [
        (name, middle(rounds, kind, "p50"), middle(rounds, kind, "p99"), colour)
        for name, rounds, kind, colour in rows
    ]
    scale = (_WIDTH - _LEFT - _RIGHT) / log10(max(p99 for _, _, p99, _ in found) / _LEAST_MS)

    def x_of(value_ms: float) -> float:
        return _LEFT + log10(max(value_ms, _LEAST_MS) / _LEAST_MS) * scale

    height = _TOP + len(found) * _ROW + 8
    drawn = []
    for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000):
        if x_of(tick) > _WIDTH - _RIGHT:
            break
        drawn += [
            text_at(x_of(tick), _TOP - 12, f"{tick:g} ms" if tick == 1 else f"{tick:g}", "middle"),
            (
                f'<line x1="{x_of(tick):.1f}" y1="{_TOP - 8}" x2="{x_of(tick):.1f}" '
                f'y2="{height - 8}" stroke="#ddd"/>'
            ),
        ]
    for number, (name, p50, p99, colour) in enumerate(found):
        y = _TOP + _ROW * number
        drawn += [
            text_at(_LEFT - 8, y + 19, name, "end"),
            (
                f'<rect x="{x_of(p50):.1f}" y="{y + 5}" '
                f'width="{max(x_of(p99) - x_of(p50), 2.0):.1f}" height="20" fill="{colour}"/>'
            ),
            text_at(_WIDTH - 8, y + 19, f"{p50:.1f} to {p99:.1f} ms", "end"),
        ]
    head = (
        "From page exit to a feature, p50 to p99, at "
        f"{'half of the capacity of the baseline: ' if result['baseline_events_per_s'] else ''}"
        f"{result['events_per_s']:,.0f} events/s{', a trial' if result['trial'] else ''}"
    )
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([opened, ground, text_at(8, 22, head), *drawn, "</svg>", ""])
