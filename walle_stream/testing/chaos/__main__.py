"""``python -m walle_stream.testing.chaos``: a campaign from the command line.

Exit codes: 0 every life had the bytes of the run that nobody killed, 1 one
differed, hung or failed, 2 wrong usage, 130 interrupted; --resume goes on.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from walle_stream.clock import monotonic_ms
from walle_stream.errors import CampaignError, WalleError
from walle_stream.testing.chaos.campaign import Campaign
from walle_stream.testing.chaos.plan import ChaosPlan, PartPlan
from walle_stream.testing.chaos.report import FaultReport, render
from walle_stream.testing.chaos.targets import TARGETS

_LINES = 20


def main() -> int:
    """Run a campaign; returns the exit code."""
    parser = _parser()
    options = parser.parse_args()
    # as Ctrl-C: the run at hand is killed, the folder can be resumed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = ChaosPlan(
        pipeline=options.pipeline,
        # a later --set of the user's wins
        overrides=(
            "spec.runtime.partitions=4",
            # devices are written now and then, from the journal and to leave memory
            "spec.state.journalEvents=100",
            "spec.runtime.activeDevices=30",
            *options.set,
        ),
        parts=tuple(options.target or [PartPlan("local", options.kills)]),
        seed=options.seed,
        hosts=options.hosts,
        mean_delay_s=options.mean_delay,
    )
    if options.resume and not options.folder:
        parser.error("--resume needs the --folder of the campaign")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="walle-chaos-"))
    try:
        campaign = Campaign(
            plan, folder, is_resumed=options.resume, on_kill=_Progress(plan.kills).show
        )
        report = campaign.run()
    except CampaignError as error:
        print(f"chaos: {error}", file=sys.stderr)
        if not options.folder:
            shutil.rmtree(folder)
        return error.exit_code
    except WalleError as error:
        print(f"chaos: {error} (everything is in {folder})", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        how = f"the same command with --folder {folder} --resume goes on"
        print(f"\nchaos: interrupted; {how}", file=sys.stderr)
        return 130
    if options.json:
        options.json.write_bytes(report.to_json())
    print(render(report))
    if report.mismatches:
        print(f"chaos: the data directories are in {folder}", file=sys.stderr)
        return 1
    if not options.folder:
        shutil.rmtree(folder)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m walle_stream.testing.chaos", description="kill -9 a pipeline and compare"
    )
    parser.add_argument("--kills", type=_count, default=500, help="of the target 'local'")
    parser.add_argument(
        "--target",
        type=_part,
        action="append",
        metavar="NAME=KILLS",
        help=f"instead of --kills, may be repeated: {', '.join(TARGETS)} or package.module:NAME",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=_count, default=2)
    parser.add_argument(
        "--mean-delay",
        type=_seconds,
        default=0.25,
        metavar="S",
        help="mean time between kills at random moments",
    )
    parser.add_argument("--pipeline", default="ipv")
    parser.add_argument("--set", action="append", default=[], help="like walle run")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--folder", type=Path, help="for data directories and progress")
    parser.add_argument(
        "--resume", action="store_true", help="go on in --folder; begin when nothing was begun"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _part(text: str) -> PartPlan:
    name, _, kills = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"expected NAME=KILLS, found {text!r}")
    return PartPlan(name, _count(kills))


class _Progress:
    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._step = max(1, wanted // _LINES)
        self._shown = -1
        self._started_ms = monotonic_ms()
        self._before = -1

    def show(self, report: FaultReport) -> None:
        done = report.kills
        if self._before < 0:
            self._before = done
        line = f"{done}/{self._wanted} kills, life {sum(each.lives for each in report.parts)}"
        if done > self._before:
            each_ms = (monotonic_ms() - self._started_ms) / (done - self._before)
            line += f", {each_ms * (self._wanted - done) / 60_000:.0f} min to go"
        if sys.stderr.isatty():
            print(f"\r{line} ", end="" if done < self._wanted else "\n", file=sys.stderr)
        elif done // self._step > self._shown:
            self._shown = done // self._step
            print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
