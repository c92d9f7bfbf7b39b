"""Table of the cases that each backend passes: ``make conformance``.

Each backend runs in a process of its own that cannot load other evaluators
(``testing.onnx.conformance``). This process only reads their counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

BACKENDS: Final = ("numpy", "reference", "toy")
REPORT_FORMAT: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 if every backend meets its bars, else 1.
    """
    parser = argparse.ArgumentParser(prog="report", description=__doc__)
    parser.add_argument("--backend", action="append", help=f"default: {', '.join(BACKENDS)}")
    parser.add_argument(
        "--cases", type=Path, help="file of cases, written if missing; default: a temporary file"
    )
    parser.add_argument("--json", type=Path, help="write counts and reasons to this file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        cases = given.cases or Path(folder) / "cases.zip"
        counted = {each: _counted(each, cases, Path(folder)) for each in given.backend or BACKENDS}
    report = merged(counted)
    for row in table(report):
        print(f"{row[0]:20}" + "".join(f"{cell:>18}" for cell in row[1:]))  # noqa: T201  # a command
    for name, backend in report["backends"].items():
        for case, reason in backend["failed"].items():
            print(f"  {name}: {case}: {reason}")  # noqa: T201  # same
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(each["met"] for each in report["backends"].values()) else 1


def _counted(backend: str, cases: Path, folder: Path) -> dict[str, Any]:
    counts = folder / f"{backend}.json"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.conformance"]
    command += ["--backend", backend, "--cases", str(cases), "--json", str(counts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  # ours
    if not counts.exists():
        raise SystemExit(f"backend {backend}: exit code {done.returncode}: {done.stderr}")
    found: dict[str, Any] = json.loads(counts.read_text())
    return {**found, "met": done.returncode == 0}


def merged(counted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the reports of the backends.

    Args:
        counted: Reports of ``testing.onnx.conformance`` with ``met``, by backend.

    Returns:
        A report with the common data once, and the other data by backend.
    """
    first = next(iter(counted.values()))
    own = ("subsets", "met", "failed", "seconds")
    return {
        "format": REPORT_FORMAT,
        "versions": first["versions"],
        "python": first["python"],
        "backends": {name: {key: each[key] for key in own} for name, each in counted.items()},
    }


def table(report: Mapping[str, Any]) -> list[list[str]]:
    """Return the counts as rows of text.

    Args:
        report: Report of ``merged``.

    Returns:
        A header, then a row per subset with the passed and all cases of each backend. A cell is
        empty if the backend does not have the subset.
    """
    backends = report["backends"]
    subsets = dict.fromkeys(name for each in backends.values() for name in each["subsets"])
    rows = [["subset", "bar", *backends]]
    for subset in subsets:
        found = [each["subsets"].get(subset) for each in backends.values()]
        # a backend without a bar for a subset has 0
        bar = max(each["bar"] for each in found if each)
        rows.append(
            [subset, f"{bar:,}"]
            + [f"{each['passed']:,} of {each['total']:,}" if each else "" for each in found]
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
