"""Bars and tables of the release service: for the terminal and ``bench/results``."""

from collections.abc import Iterator
from math import inf
from statistics import median
from typing import Any, Final

from vm_parts.tables import Table, bars_table

_RATE_MIN: Final = 5_000
_P99_MAX_MS: Final = 20.0
_DECISION_MAX_US: Final = 20.0
_MEMORY_MAX_MB: Final = 500
_RELEASES: Final = 1_000
_DEVICES: Final = 1_000_000
_REPORT_MAX_MS: Final = 5.0
_REPORTS_MIN: Final = 2_000
_BUSY_MAX: Final = 0.9
_ROUNDS_MIN: Final = 5


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for.

    Args:
        result: Of a run, see ``bench/release.py``.

    Returns:
        For each bar ``name``, ``bar``, ``value``, ``met`` and ``note``.
    """
    note = "a trial on a busy machine" if result["trial"] else ""
    if not note and len(result["rounds"]) < _ROUNDS_MIN:
        note = f"fewer than {_ROUNDS_MIN} rounds"
    made: list[tuple[str, float, bool, float, str]] = []
    if result["rounds"]:
        rate = median(each["most"]["per_core_s"] for each in result["rounds"])
        p99 = median(_p99_ms(each["steady"]) for each in result["rounds"])
        kept = median(_kept(each) for each in result["rounds"])
        made += [
            ("checks per second and core", _RATE_MIN, True, rate, note),
            ("p99 at 70 % of that, ms, a 503 never comes", _P99_MAX_MS, False, p99, note),
            ("of the most, still answered at twice the load", 0.5, True, round(kept, 3), note),
        ]
    for each in result["decisions"]:
        if each["releases"] == _RELEASES:
            name = f"a decision with 1,000 releases, {each['kind']}, us (median)"
            made.append((name, _DECISION_MAX_US, False, each["us"]["p50"], note))
    if result["memory"]:
        found = result["memory"]
        few = "" if found["devices"] >= _DEVICES else "fewer devices than the bar's"
        name = "memory of 1,000,000 known devices, MB"
        made.append((name, _MEMORY_MAX_MB, False, found["mb"], few))
    for each in _most_known(result["reports"]):
        few = note if each["devices"] >= _DEVICES else "fewer devices than the bar's"
        name = f"a report with 1,000,000 known devices, {each['store']}, ms of CPU"
        made.append((name, _REPORT_MAX_MS, False, each["one_cpu_ms"], few))
        name = f"reports per second and core, {each['store']}"
        made.append((name, _REPORTS_MIN, True, each["per_core_s"], few))
    return [
        {
            "name": name,
            "bar": f"{'≥' if is_least else '<'} {bar:g}",
            "value": value,
            "met": value >= bar if is_least else value < bar,
            "note": why,
        }
        for name, bar, is_least, value, why in made
    ]


def _p99_ms(load: dict[str, Any]) -> float:
    found = load["p99_ms"]
    return inf if found is None else float(found)


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables of the parts that ran."""
    yield bars_table(result["bars"])
    if result["rounds"]:
        yield _load(result["rounds"])
        yield _most(result["rounds"])
    if result["decisions"]:
        yield _decisions(result["decisions"])
    if result.get("reports"):  # older results have none
        yield _reports(result["reports"])
    if result["memory"]:
        yield Table(
            "Known devices of one worker",
            ("devices", "known", "MB", "a look, us", "the slowest, ms"),
            [
                tuple(
                    f"{result['memory'][key]:,}"
                    for key in ("devices", "known", "mb", "see_us", "worst_ms")
                )
            ],
        )


def _most_known(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    most = max((each["devices"] for each in reports), default=0)
    return [each for each in reports if each["devices"] == most]


def _reports(reports: list[dict[str, Any]]) -> Table:
    return Table(
        "Reports of one device, with a receipt of a release's group",
        ("store", "known devices", "ms of CPU", "ms", "per second and core", "per second"),
        [
            (
                each["store"],
                f"{each['devices']:,}",
                f"{each['one_cpu_ms']:.2f}",
                f"{each['one_ms']:.2f}",
                f"{each['per_core_s']:,.0f}",
                f"{each['per_s']:,.0f}",
            )
            for each in reports
        ],
        "The first two times are of reports that come one by one, the rates of 32 senders. CPU is "
        "that of the monitor and of the database's server.",
    )


def _served(load: dict[str, Any]) -> dict[str, Any]:
    served: dict[str, Any] = load["by_status"]["204"]
    return served


def _kept(found: dict[str, Any]) -> float:
    kept: float = _served(found["past"])["per_s"] / found["most"]["per_s"]
    return kept


def _most(rounds: list[dict[str, Any]]) -> Table:
    rows = []
    names = {
        "the service": "most",
        "the same, each device with a token": "tokens",
        "uvicorn with an empty application": "floor",
    }
    for name, key in names.items():
        if any(key not in each for each in rounds):
            continue  # a result from before there were tokens
        values = [each[key]["per_core_s"] for each in rounds]
        busy = max(each[key]["generator_busy"] for each in rounds)
        rows.append((name, f"{median(values):,.0f}", f"{min(values):,.0f}", f"{busy:.0%}"))
    ratio = median(each["most"]["per_core_s"] / each["floor"]["per_core_s"] for each in rounds)
    return Table(
        "As many as it can, closed loop",
        ("what", "per second of CPU (median)", "least of a round", "load generator's core"),
        rows,
        f"The service does {ratio:.2f} of what uvicorn does with nothing behind it. The generator "
        f"is not what limits while its own core is below {_BUSY_MAX:.0%}.",
    )


def _load(rounds: list[dict[str, Any]]) -> Table:
    rows = []
    for name, key in (("70 % of the most", "steady"), ("twice the most", "past")):
        loads = [each[key] for each in rounds]
        served = [_served(each) for each in loads]
        refused = [each["by_status"].get("503", {}).get("per_s", 0.0) for each in loads]
        dropped = [each["dropped"] / each["seconds"] for each in loads]
        cells = [[each["ms"]["p50"] for each in served], [each["ms"]["p99"] for each in served]]
        rows.append(
            (
                name,
                f"{median(each['offered_per_s'] for each in loads):,.0f}",
                f"{median(each['per_s'] for each in served):,.0f}",
                f"{median(refused):,.0f}",
                f"{median(dropped):,.0f}",
                *(f"{median(each):.2f}" for each in cells),
            )
        )
    return Table(
        "Open loop",
        ("load", "offered/s", "answered/s", "503/s", "no free device/s", "p50 ms", "p99 ms"),
        rows,
        "Times count from when a request was due, at random times. Past saturation what finds "
        "all simulated devices waiting is not sent.",
    )


def _decisions(decisions: list[dict[str, Any]]) -> Table:
    return Table(
        "The decision alone",
        ("releases", "of a device", "classes", "p50 us", "p99 us", "index made, ms"),
        [
            (
                f"{each['releases']:,}, {each['kind']}",
                f"{each['tasks']} tasks",
                str(each["classes"]),
                f"{each['us']['p50']:.2f}",
                f"{each['us']['p99']:.2f}",
                f"{each['build_ms']:.1f}",
            )
            for each in decisions
        ],
        "Mixed: apps of ten tasks, each with four releases for different devices. One app: all "
        "releases may fit every device, the worst case.",
    )
