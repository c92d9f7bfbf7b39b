"""Bars and tables of the fleet: for the terminal and ``bench/results/README.md``."""

from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from vm_parts.tables import Table, bars_table

_MEMORY_MAX_MIB: Final = 2e9 / 2**20
_ACTIVATION_MAX_MS: Final = 1.0
_HOT_MAX: Final = 2.0
_BACKLOG_MAX_MS: Final = 500.0
_MIXES: Final = {"alone": "alone", "even": "even", "hot": "beside a hot one"}
_TITLES: Final = {"active": "all in memory", "resting": "at rest"}


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for.

    Returns:
        For each bar ``name``, ``bar``, ``value``, ``met`` and ``note``.
    """
    made = []
    note = "" if result["is_whole"] else "a smaller fleet than the bar's"
    # memory is the same on a busy machine, times are not
    timing_note = note or ("a trial on a busy machine" if result["trial"] else "")
    if "resting" in result:
        resting = result["resting"]
        rss_mib = resting["after"]["rss_mib"]
        made.append(("RSS with all devices at rest, MiB", _MEMORY_MAX_MIB, rss_mib, note))
        p99 = resting["single"]["take_ms"]["p99"]
        name = "a device at rest comes into memory and takes an event, ms (p99), without the commit"
        made.append((name, _ACTIVATION_MAX_MS, p99, timing_note))
    if "hot" in result:
        rounds = result["hot"]["rounds"]
        behind = sum(
            any(each["backlog_ms"] > _BACKLOG_MAX_MS for each in r.values()) for r in rounds
        )
        if behind:
            timing_note = f"the machine did not keep up in {behind} of {len(rounds)} rounds"
        for clock in ("wall", "CPU"):
            ratio = round(median(_ratios(rounds, "alone", "others", f"{clock.lower()}_ms")), 3)
            made.append(
                (
                    f"the others' p99 beside a hot device, {clock} clock",
                    _HOT_MAX,
                    ratio,
                    timing_note,
                )
            )
    return [
        {
            "name": name,
            "bar": f"< {bar:,.0f}{' times' if bar == _HOT_MAX else ''}",
            "value": value,
            "met": value < bar and not why,
            "note": why,
        }
        for name, bar, value, why in made
    ]


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables of the parts that ran."""
    yield bars_table(result["bars"])
    if "resting" in result:
        yield _memory(result)
        yield _activation(result)
    if "hot" in result:
        yield _hot(result["hot"])


def _memory(result: dict[str, Any]) -> Table:
    rows = []
    devices = result["settings"]["devices"]
    for name, title in _TITLES.items():
        each = result[name]
        before, after = each["before"], each["after"]
        grown_bytes = (after["rss_mib"] - before["rss_mib"]) * 2**20 / devices
        row = [f"{value:,.0f}" for value in (before["rss_mib"], after["rss_mib"], after["pss_mib"])]
        rows.append(
            (
                title,
                f"{each['active_devices']:,}",
                *row,
                f"{grown_bytes:,.0f}",
                f"{each['disk_mib']:,.0f}",
            )
        )
    head = ("fleet", "in memory", "RSS empty", "RSS", "PSS", "bytes a device", "on disk")
    checked = result["check"]["checked"]
    return Table(
        f"Memory of {devices:,} devices with state, live cursor and open page, MiB",
        head,
        rows,
        f"A new process over the data directory found all three of {checked:,} of {checked:,} "
        "devices; empty: 16 partitions and the VMs, no device.",
    )


def _activation(result: dict[str, Any]) -> Table:
    active, resting = result["active"], result["resting"]
    rows = []
    for clock in ("wall", "cpu"):
        warm, cold = active["single"][f"{clock}_ms"], resting["single"][f"{clock}_ms"]
        many = (active["bulk"][f"{clock}_us"], resting["bulk"][f"{clock}_us"])
        rows.append(
            (
                "CPU of the host's thread" if clock == "cpu" else "wall",
                *[f"{each['p50']:.3f} / {each['p99']:.3f}" for each in (warm, cold)],
                f"{cold['p50'] - warm['p50']:.3f}",
                f"{many[1] - many[0]:.1f}",
            )
        )
    if "take_ms" in resting["single"]:
        warm, cold = active["single"]["take_ms"], resting["single"]["take_ms"]
        taken = [f"{each['p50']:.3f} / {each['p99']:.3f}" for each in (warm, cold)]
        rows.append(("wall, without the commit", *taken, f"{cold['p50'] - warm['p50']:.3f}", ""))
    head = ("clock", "in memory, p50 / p99", "at rest, p50 / p99", "one activation", "of many, us")
    return Table(
        "A turn of one event without a run, to its commit, ms",
        head,
        rows,
        "One activation: the difference of the medians, in a whole turn with putting the device to "
        "rest again; of many: the same in batches, per device.",
    )


def _hot(hot: dict[str, Any]) -> Table:
    rows = []
    rounds, load = hot["rounds"], hot["load"]
    for name, title in (("others", "all others"), ("same_partition", "in its partition")):
        for clock in ("wall", "cpu"):
            key = f"{clock}_ms"
            shown = [
                f"{median(each[mix][name][key]['p99'] for each in rounds):.2f}" for mix in _MIXES
            ]
            for against in ("alone", "even"):
                ratios = _ratios(rounds, against, name, key)
                shown.append(f"{median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})")
            rows.append((title, clock, *shown))
    return Table(
        "p99 from exit to commit of the others, ms",
        ("devices", "clock", *_MIXES.values(), "beside / alone", "beside / even"),
        rows,
        f"{load['devices']:,} devices for {load['seconds']:g} s, medians of {len(rounds)} rounds. "
        f"Alone: {load['events_per_s'] // 2:,} events a second; beside a hot device: the same, and "
        f"as many of that one; even: {load['events_per_s']:,} of the others. The CPU clock is the "
        "process's: what neighbours on the machine take is not in it.",
    )


def _ratios(rounds: list[dict[str, Any]], against: str, name: str, key: str) -> list[float]:
    return [each["hot"][name][key]["p99"] / each[against][name][key]["p99"] for each in rounds]
