"""Compare the cloud side's table with a run that nobody disturbed: ADDRESS REFERENCE SECONDS."""

import json
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from walle_stream.testing.chaos.kafka.table import reference_lines, table_lines


def main() -> int:
    """Print an object with the counts; 0 when every line is equal."""
    address, reference, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    wanted = reference_lines(reference)
    devices = [json.loads(line)["device"] for line in wanted["devices"]]
    deadline_s = time.monotonic() + seconds
    while not is_caught_up(address, len(wanted["features"])) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    found: Mapping[str, Sequence[bytes]] | None = None
    while (found := table_lines(address, devices)) is None and time.monotonic() < deadline_s:
        time.sleep(0.2)
    found = found or {"devices": [], "features": []}
    differing = {name: differ(wanted[name], found[name]) for name in wanted}
    counts = {name: len(lines) for name, lines in wanted.items()}
    own = health_of(address).get("counts", {})
    print(json.dumps({**counts, "differing": differing, "counts": own}))
    return int(any(differing.values()))


def is_caught_up(address: str, features: int) -> bool:
    """Return whether the table lacks no record of its topic, and has this number of features."""
    if not (health := health_of(address)):
        return False
    parts = health["partitions"].values()
    is_behind = any(each["lag_records"] or not each["is_ready"] for each in parts)
    return not is_behind and health["counts"]["features"] >= features


def health_of(address: str) -> dict[str, Any]:
    """Return what the cloud side says of itself; nothing where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
            health: dict[str, Any] = json.load(answer)
    except OSError:
        return {}
    return health


def differ(wanted: Sequence[bytes], found: Sequence[bytes]) -> list[str]:
    """Return some of the lines that only one side has, or that are in another order."""
    lines = [f"- {line!r}" for line in set(wanted) - set(found)]
    lines += [f"+ {line!r}" for line in set(found) - set(wanted)]
    if not lines and sorted(wanted) != sorted(found):
        lines = ["some are there twice"]
    return lines[:6]


if __name__ == "__main__":
    raise SystemExit(main())
