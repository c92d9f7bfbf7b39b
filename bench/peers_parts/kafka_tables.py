"""The tables of the peers over Kafka: for the terminal and ``bench/results/README.md``."""

from collections.abc import Iterator
from typing import Any, Final

from vm_parts.tables import Table

BAR: Final = 1.5
"""What ours must make of the best peer's events per CPU-second, same driver."""

_OURS: Final = ("walle-confluent", "walle")
_PLAIN: Final = "plain"


def bars(contenders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare each of ours with the best peer of its kind of driver.

    Python's clients are kafka-python, ours, and aiokafka, Faust's. One that keeps neither state
    nor offsets does less than all others: it has a line of its own.

    Returns:
        ``title``, ``ratio`` (median of the rounds), ``without_start`` (the ratio without the cost
        of a run over one event; None if runs were too short), ``on_one_python`` and ``is_met`` of
        the ratio. ``on_one_python`` is the ratio without the plain loop's gain by our Python over
        the peer's; None if both have one Python, or it was not measured. The bar is ``BAR``.
    """
    peers = [
        each
        for each in contenders
        if each["name"] not in _OURS and not each["name"].startswith(_PLAIN)
    ]
    native = [each for each in peers if each["driver"] == "librdkafka"]
    keeping = [each for each in peers if each["keeps_state"]]
    groups = (
        ("walle-confluent", [each for each in native if each["keeps_state"]]),
        ("walle-confluent", [each for each in native if not each["keeps_state"]]),
        ("walle", [each for each in keeping if each["driver"] == "aiokafka"]),
        ("walle", keeping),
    )
    rows = []
    for ours, group in groups:
        ratios = {each["title"]: each["ratios"].get(ours) for each in group}
        medians = {title: ratio["median"] for title, ratio in ratios.items() if ratio}
        if medians:
            best = min(medians, key=lambda title: medians[title])
            peer = next(each for each in group if each["title"] == best)
            keeps = "" if peer["keeps_state"] else ", which keeps nothing"
            rows.append(
                {
                    "title": f"{ours} / {best}{keeps}",
                    "ratio": medians[best],
                    "without_start": (peer["ratios_without_start"].get(ours) or {}).get("median"),
                    "on_one_python": _on_one_python(medians[best], peer, contenders),
                    "is_met": medians[best] >= BAR,
                }
            )
    return rows


def _on_one_python(
    ratio: float, peer: dict[str, Any], contenders: list[dict[str, Any]]
) -> float | None:
    """Return a ratio less what our Python gains over the peer's."""
    minor = ".".join(peer["python"].split(".")[:2])
    speeds = {each["name"]: each["events_per_cpu_second"]["median"] for each in contenders}
    name = f"{_PLAIN}-confluent"
    older = speeds.get(f"{name}-{minor}")
    return None if older is None else round(ratio * older / speeds[name], 3)


def kafka_tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables."""
    head = ("contender", "driver", "version", "Python", "events / CPU-s", "quartiles")
    head += ("without start", "peak RSS, MiB", "walle-confluent is", "walle is")
    rows = []
    for each in result["contenders"]:
        speed, alone = each["events_per_cpu_second"], each["without_start"]
        rows.append(
            (
                each["title"],
                each["driver"],
                each["version"],
                each["python"],
                f"{speed['median']:,.0f}",
                f"{speed['q1']:,.0f} - {speed['q3']:,.0f}",
                f"{alone['median']:,.0f}" if alone else "too short",
                f"{each['peak_rss_mib']:,.0f}",
                *[_times(each["ratios"].get(name)) for name in _OURS],
            )
        )
    rows += [(each["title"], *[""] * (len(head) - 1)) for each in result["missing"]]
    note = (
        "Whole processes without the broker; the start is that of a run over one event. All made "
        "the same features. A contender without a wheel for our Python runs on an older one; if "
        "the plain loop on that Python is listed, it shows the cost of this alone."
    )
    yield Table("Item page views of the shop over Kafka", head, rows, note)
    met = [
        (
            each["title"],
            f"{each['ratio']:.2f}",
            "met" if each["is_met"] else "MISSED",
            f"{each['without_start']:.2f}" if each["without_start"] else "too short",
            f"{each['on_one_python']:.2f}" if each.get("on_one_python") else "",
        )
        for each in result["bars"]
    ]
    heads = ("ours / best peer", "ratio", "", "without start", "as on one Python")
    yield Table(f"At least {BAR} times the best peer's", heads, met)
    latency = result["latency"]
    if latency:
        measured = [
            (
                each["title"],
                f"{each['latency']['p50_ms']:.1f}",
                f"{each['latency']['p99_ms']:.1f}",
                f"{each['latency']['max_ms']:.1f}",
                f"{each['latency']['features']:,}",
                f"{each['latency']['missing']:,}",
            )
            for each in result["contenders"]
            if "latency" in each
        ]
        yield Table(
            f"Exit in the topic to feature readable, ms, {latency['rate']:,.0f} events a second",
            ("contender", "p50", "p99", "max", "features", "missing"),
            measured,
            "A quarter of the slowest one's speed. Producer and reader share the machine; nobody's "
            "producer lingers.",
        )
    known = [(each["title"], each["note"]) for each in result["contenders"]]
    known += [(each["title"], f"did not take part: {each['reason']}") for each in result["missing"]]
    yield Table("Notes on the contenders", ("contender", "what to know"), known)


def _times(ratio: dict[str, float] | None) -> str:
    return f"{ratio['median']:.2f} times" if ratio else ""
