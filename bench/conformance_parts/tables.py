"""What a count leaves, and its columns beside ours: terminal and ``bench/results/README.md``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from vm_parts.tables import Table

from conformance_parts.counting import Count

FORMAT: Final = 1


def counts(count: Count) -> dict[str, Any]:
    """Give a peer's part of the result."""
    failed: dict[str, dict[str, Any]] = {}
    for name, reason in count.tally.failed.items():
        under = failed.setdefault(count.operators[name], {"first": reason, "cases": []})
        under["cases"].append(name)
    return {
        "subsets": {
            each: {"passed": count.tally.passed[each], "total": total}
            for each, total in count.tally.total.items()
        },
        "failed": dict(sorted(failed.items())),
        "deaths": count.deaths,
        "seconds": round(count.tally.seconds, 1),
    }


def beside(rows: Sequence[Sequence[str]], result: Mapping[str, Any]) -> list[list[str]]:
    """Put the peers' columns beside ours.

    Args:
        rows: Ours, the head first, then a row a subset whose name stands first.
        result: Of a whole run, see ``bench/conformance_peers.py``.
    """
    head, *ours = rows
    made = [[*head, *(each["title"] for each in result["peers"])]]
    for row in ours:
        found = [each["subsets"].get(row[0]) for each in result["peers"]]
        made.append([*row, *map(_cell, found)])
    return made


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Make the tables of a run.

    Args:
        result: Of it, see ``bench/conformance_peers.py``.
    """
    subsets = dict.fromkeys(name for each in result["peers"] for name in each["subsets"])
    head, *rows = beside([["subset"], *([each] for each in subsets)], result)
    yield Table("Cases that pass", tuple(head), [tuple(each) for each in rows])
    yield known(result)


def known(result: Mapping[str, Any]) -> Table:
    """Make the table of who takes part.

    Args:
        result: As for ``tables``.
    """
    rows = [
        (each["title"], each["version"], each["python"], str(each["deaths"]), each["note"])
        for each in result["peers"]
    ]
    rows += [
        (each["title"], "", "", "", f"did not take part: {each['reason']}")
        for each in result["missing"]
    ]
    head = ("engine", "version", "Python", "processes that died", "how it gets its cases")
    return Table("Engines counted", head, rows)


def _cell(subset: Mapping[str, int] | None) -> str:
    return f"{subset['passed']:,} of {subset['total']:,}" if subset else ""
