"""``make cluster``: from three machines to features, by the commands of a user."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster.engine import why_missing
from tests.cluster.kit import open_kit
from tests.cluster.load import Load
from tests.s3 import find_server

_JOB_S: Final = 180.0


class Times:
    """How long each step took, told as they end."""

    def __init__(self) -> None:
        """Begin with none."""
        self.took: dict[str, float] = {}

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Measure one."""
        began_s = time.monotonic()
        yield
        self.took[step] = round(time.monotonic() - began_s, 1)
        print(f"{self.took[step]:6.1f} s  {step}", flush=True)


def main() -> int:
    """Return the exit code: 0 where features are equal."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--json", type=Path, help="write times and counts there")
    parser.add_argument("--runtime", default="cluster", choices=["cluster", "ray"])
    parser.add_argument("--copies", type=int, default=1, help="how often each user is there")
    parser.add_argument(
        "--full",
        type=int,
        default=10_000,
        help="devices with 100 kB of state each, of which nodes die and move",
    )
    parser.add_argument(
        "--keep", type=Path, help="folder for everything; a temporary one unless told"
    )
    options = parser.parse_args()
    program, reason = find_server(), why_missing()  # type: ignore[no-untyped-call]
    if reason or program is None:
        print(reason or "no S3 server here: .ci/s3.sh builds it", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="walle-cluster-") as temporary:
        found = _run(options.keep or Path(temporary), program, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found["features"]))
    return int(any(found["features"]["differing"].values()) or bool(found["load"]["wrong"]))


def _run(folder: Path, program: str, options: argparse.Namespace) -> dict[str, Any]:
    times = Times()
    with ExitStack() as stack:
        stack.enter_context(times.of("all"))
        with times.of("machines"):
            kit = stack.enter_context(open_kit(folder, program))
        with times.of("ray up"):
            kit.ray.up()
        with times.of("three nodes"):
            kit.ray.await_nodes(*kit.everybody)
        with times.of("feed"):
            rows = kit.feed(options.copies)
        with times.of("reference"):
            kit.run_reference()
        with kit.cloud():
            with times.of("job"):
                kit.submit("--hosts", "3", runtime=options.runtime)
                report = kit.await_report(_JOB_S)
            with times.of("compare"):
                features = kit.compare()
        objects = len(kit.snapshots())
        with times.of("load"):
            load = Load(kit, options.full).live()
            print(json.dumps(load), flush=True)
        with times.of("ray down"):
            kit.ray.down()
    return {
        "rows": rows,
        "events": report["events"],
        "features": features,
        "snapshot_objects": objects,
        "load": load,
        "seconds": times.took,
    }


if __name__ == "__main__":
    raise SystemExit(main())
