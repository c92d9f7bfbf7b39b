"""Bars and tables of installations under load: for the terminal and ``bench/results``."""

from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from vm_parts.measuring import quantile
from vm_parts.tables import Table, bars_table

_INSTALL_MAX_MS: Final = 100.0
_KINDS: Final = (("one", "one device"), ("all", "all devices"))


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for.

    Returns:
        For each bar ``name``, ``bar``, ``value``, ``met`` and ``note``.
    """
    note = "a quick look" if result["quick"] else ""
    found = []
    for kind, title in _KINDS:
        value = round(quantile(_taken(result, kind), 0.99), 2)
        found.append(
            {
                "name": f"installed on {title} under load, ms (p99)",
                "bar": f"< {_INSTALL_MAX_MS:g}",
                "value": value,
                "met": value < _INSTALL_MAX_MS,
                "note": note,
            }
        )
    lost = {
        "rounds with other features than without installations": "is_any_feature_other",
        "events that were not handled": "events_not_handled",
    }
    for name, key in lost.items():
        count = sum(each[key] for each in result["rounds"])
        found.append({"name": name, "bar": "0", "value": count, "met": count == 0, "note": ""})
    return found


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables.

    Args:
        result: With its ``bars``.
    """
    yield bars_table(result["bars"])
    rounds = result["rounds"]
    restart = median(median(each["restart_ms"]) for each in rounds)
    rows = []
    for kind, title in _KINDS:
        taken = _taken(result, kind)
        p50, p99 = (quantile(taken, share) for share in (0.5, 0.99))
        times = (f"{p50:.1f}", f"{p99:.1f}", f"{max(taken):.1f}")
        rows.append((title, f"{len(taken):,}", *times, f"{restart / p50:.0f}"))
    rows.append(
        (
            "a restart instead",
            str(sum(len(each["restart_ms"]) for each in rounds)),
            f"{restart:.0f}",
            "",
            "",
            "1",
        )
    )
    load = median(each["installing"]["events_per_s"] for each in rounds)
    alone, busy = (
        median(each[name]["exit_to_commit_p99_ms"] for each in rounds)
        for name in ("alone", "installing")
    )
    yield Table(
        "A version installed into a running host",
        ("", "how often", "p50, ms", "p99, ms", "longest, ms", "times as fast as a restart"),
        rows,
        f"Half of the maximum rate, {load:,.0f} events a second, {result['settings']['devices']:,} "
        f"devices; exit to commit p99 {alone:.1f} ms without installations, {busy:.1f} ms with "
        f"them; all installations of {result['settings']['rounds']} rounds. From the call to the "
        "commit, storing the package and binding its VM included; pulling and verifying not.",
    )


def _taken(result: dict[str, Any], kind: str) -> list[float]:
    return [each for found in result["rounds"] for each in found["installing"]["install_ms"][kind]]
