"""`python -m tests.power`: a campaign of power cuts.

Exit codes: 0 all that was promised was there, 1 something was not, 2 wrong usage, 3 it cannot run
here, 130 interrupted; with --folder the same command goes on.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from tests.power import ext4
from tests.power.campaign import WEIGHTS, Campaign, Recording, plan
from tests.power.record import compiler
from walle_stream.errors import CampaignError
from walle_stream.testing.chaos.console import positive

CANNOT = 3


def main():
    """Run a campaign and return the exit code."""
    options = _parser().parse_args()
    missing = ext4.missing() if options.ext4 else _missing()
    if missing:
        print(f"power: {missing}", file=sys.stderr)
        return CANNOT
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    wanted = dict(options.workload) or plan(options.ext4 or options.cuts)
    make = ext4.RealDisk if options.ext4 else partial(Recording, skip=options.skip)
    try:
        campaign = Campaign(wanted, options.seed, options.folder, make)
        report = campaign.run(_Progress(sum(wanted.values())))
    except CampaignError as error:
        print(f"power: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\npower: interrupted; with --folder the same command goes on", file=sys.stderr)
        return 130
    if options.json:
        options.json.write_bytes(report.to_json())
    for part in report.parts:
        print(
            f"{part.target:<18} {part.kills:>4} cuts of {part.lives} recordings, {part.wall_s:.0f} s, {len(part.mismatches)} wrong"
        )
        for each in part.mismatches:
            print(f"  {each.life}\n    {each.text}")
    print(
        report.proof
        if not report.mismatches
        else f"power: {len(report.mismatches)} cuts left something wrong"
    )
    return 1 if report.mismatches else 0


def _missing():
    return None if compiler() else "there is no C compiler here, so no power is cut: install gcc"


class _Progress:
    """A line about cuts: rewritten in a terminal, some twenty of them elsewhere."""

    def __init__(self, wanted):
        self._wanted, self._began, self._before, self._shown = wanted, time.monotonic(), None, 0

    def __call__(self, report):
        done = report.kills
        if self._before is None:
            self._before = done - 1
        left_s = (time.monotonic() - self._began) / (done - self._before) * (self._wanted - done)
        line = f"{done}/{self._wanted} cuts, {len(report.mismatches)} wrong, {left_s / 60:.0f} min to go"
        if sys.stderr.isatty():
            print(f"\r{line} ", end="" if done < self._wanted else "\n", file=sys.stderr)
        elif done * 20 // self._wanted > self._shown:
            self._shown = done * 20 // self._wanted
            print(line, file=sys.stderr, flush=True)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tests.power", description="cut the power, look what is left"
    )
    parser.add_argument("--cuts", type=positive, default=1_000, help="over all workloads")
    parser.add_argument(
        "--workload",
        type=_share,
        action="append",
        default=[],
        metavar="NAME=CUTS",
        help=f"instead of --cuts, may be repeated: {', '.join(WEIGHTS)}",
    )
    parser.add_argument(
        "--ext4",
        type=positive,
        metavar="CUTS",
        help="instead: shut real file systems down; needs root",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--skip",
        default="",
        metavar="PATTERNS",
        help="leave out the syncs of paths that match: a mutant",
    )
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument(
        "--folder", type=Path, help="for progress, and for disks behind which something is wrong"
    )
    return parser


def _share(text):
    name, _, cuts = text.partition("=")
    if name not in WEIGHTS:
        raise argparse.ArgumentTypeError(f"there is no workload {name!r}: {', '.join(WEIGHTS)}")
    return name, positive(cuts)


if __name__ == "__main__":
    raise SystemExit(main())
