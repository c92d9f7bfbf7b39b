"""Bars and tables of the release service: for the terminal and ``bench/results``."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from statistics import median
from typing import Any, Final

from vm_parts.tables import Table, bars_table

RELAYED: Final = 64
"""Reports of as many devices that a relay brings at once."""
LINES: Final = {
    "floor": "uvicorn with an empty application (204)",
    "nothing": "nothing new (204)",
    "nothing_open": "nothing new, nobody asked who he is",
    "push": "push (200), one task and its receipt",
    "push_open": "push, nobody asked who he is",
    "report": "report, each device posts its own",
    "relay": f"report, {RELAYED} devices' in a relay's post",
    "page": "page for operators",
}
"""Kinds of requests by name; without another word each has a token."""
STEADY: Final = ("floor", "nothing", "push")
"""Those whose times at 70 % are measured; what the machine itself does to times shows the first."""

_RATES_MIN: Final = {"nothing": 14_000, "push": 7_000, "report": 2_000}
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
    rounds = result["rounds"]
    if rounds:
        for name, least in _RATES_MIN.items():
            rate = _rate(rounds, name)
            made.append((f"{LINES[name]}: a second and core", least, True, rate, note))
        floor_ms, *times_ms = (
            median(_p99_ms(each[f"steady_{name}"]) for each in rounds) for name in STEADY
        )
        for name, p99_ms in zip(STEADY[1:], times_ms, strict=True):
            title = f"{LINES[name]}: p99 at 70 %, ms, a 503 never comes"
            beside = f"the empty application: {floor_ms:.1f}" if p99_ms >= _P99_MAX_MS else ""
            made.append((title, _P99_MAX_MS, False, p99_ms, note or beside))
        kept = median(_kept(each) for each in rounds)
        made.append(
            ("of the most, still answered at twice the load", 0.5, True, round(kept, 3), note)
        )
    for each in result["decisions"]:
        if each["releases"] == _RELEASES:
            name = f"a decision with 1,000 releases, {each['kind']}, us (median)"
            made.append((name, _DECISION_MAX_US, False, each["us"]["p50"], note))
    if result["memory"]:
        found = result["memory"]
        few = "" if found["devices"] >= _DEVICES else "fewer devices than the bar's"
        name = "memory of 1,000,000 known devices, MB"
        made.append((name, _MEMORY_MAX_MB, False, found["mb"], few))
    least_rows = {each["store"]: each["fresh_rows"] for each in result["reports"][::-1]}
    for each in _most_known(result["reports"]):
        few = note if each["devices"] >= _DEVICES else "fewer devices than the bar's"
        name = f"a report with 1,000,000 known devices, {each['store']}, ms of CPU"
        made.append((name, _REPORT_MAX_MS, False, each["one_cpu_ms"], few))
        name = f"reports per second and core, {each['store']}"
        made.append((name, _REPORTS_MIN, True, each["per_core_s"], few))
        name = f"rows that a report of a known device adds, {each['store']}"
        made.append((name, 1, False, each["known_rows"], few))
        name = f"rows that a new device adds, against 1 % of the known ones, {each['store']}"
        made.append((name, 1.01, False, each["fresh_rows"] / least_rows[each["store"]], few))
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
    if result.get("contended"):  # older results have other lines
        yield _lines(result)
        yield _load(result["rounds"], "Open loop")
        yield _load(result["contended"], "Open loop, contended")
    if result["decisions"]:
        yield _decisions(result["decisions"])
    if result.get("reports"):  # older results have none
        yield _reports(result["reports"])
        yield _growth(result["reports"])
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
        (
            "store",
            "known devices",
            "ms of CPU",
            "ms",
            "per second and core",
            "per second",
            "store commit, ms of CPU",
            "ms",
        ),
        [
            (
                each["store"],
                f"{each['devices']:,}",
                f"{each['one_cpu_ms']:.2f}",
                f"{each['one_ms']:.2f}",
                f"{each['per_core_s']:,.0f}",
                f"{each['per_s']:,.0f}",
                f"{each['commit_cpu_ms']:.2f}",
                f"{each['commit_ms']:.2f}",
            )
            for each in reports
        ],
        "The first two times are of reports that come one by one, the rates of 32 senders. CPU is "
        "that of the monitor and of the database's server. A store commit is a transaction that "
        "changes one row; when it returns, that is on the disk.",
    )


def _growth(reports: list[dict[str, Any]]) -> Table:
    return Table(
        "What a report writes, and by how much the store grows",
        (
            "store",
            "known devices",
            "rows, of a known device",
            "bytes of the log",
            "rows, of a new device",
            "bytes a known device",
        ),
        [
            (
                each["store"],
                f"{each['devices']:,}",
                f"{each['known_rows']}",
                f"{each['known_written_bytes']:,}",
                f"{each['fresh_rows']:.2f}",
                f"{each['device_bytes']:,.0f}",
            )
            for each in reports
        ],
        "Each report is its device's first of a minute. SQLite writes whole pages; PostgreSQL "
        "does so at the first change of a page behind a checkpoint. A device counts for its "
        "version, its release, its group and the version that it had last: four rows.",
    )


def _served(load: dict[str, Any]) -> dict[str, Any]:
    found = load["by_status"]
    served: dict[str, Any] = found.get("204") or found["200"]
    return served


def _kept(found: dict[str, Any]) -> float:
    kept: float = _served(found["past"])["per_s"] / found["nothing"]["per_s"]
    return kept


def _rate(rounds: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(median(each[name]["per_core_s"] for each in rounds))


def _lines(result: dict[str, Any]) -> Table:
    rounds, contended = result["rounds"], result["contended"]
    rows = []
    for name, title in LINES.items():
        ratios = [
            f"{median(e[name]['per_core_s'] / e['floor']['per_core_s'] for e in part):.3f}"
            for part in (rounds, contended)
        ]
        rates = [each[name]["per_core_s"] for each in rounds]
        busy = max(each[name]["generator_busy"] for each in rounds)
        rows.append(
            (
                title,
                f"{median(rates):,.0f}",
                f"{min(rates):,.0f}",
                ratios[0],
                f"{_rate(contended, name):,.0f}",
                ratios[1],
                f"{busy:.0%}",
            )
        )
    return Table(
        "As many as it can, closed loop",
        (
            "what",
            "per second of CPU (median)",
            "least of a round",
            "to the empty one",
            "contended",
            "to the empty one",
            "load generator's core",
        ),
        rows,
        "Each has a token, but for where nobody is asked. The empty application gets the requests "
        "of the line below it. Contended: a busy neighbour on each core. The generator is not what "
        f"limits while its own core is below {_BUSY_MAX:.0%}.",
    )


def _load(rounds: list[dict[str, Any]], title: str) -> Table:
    rows = []
    steady = [(f"70 % of the most, {LINES[name]}", f"steady_{name}") for name in STEADY]
    for name, key in (*steady, (f"twice the most, {LINES['nothing']}", "past")):
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
        title,
        ("load", "offered/s", "answered/s", "503/s", "no free device/s", "p50 ms", "p99 ms"),
        rows,
        "1,000 devices; times count from when a request was due, at random times. The most is what "
        "the service's core can do for as many devices, by what a request of theirs costs it, "
        "and at most what the closed loop reached. Past saturation what finds all simulated "
        "devices waiting is not sent.",
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
