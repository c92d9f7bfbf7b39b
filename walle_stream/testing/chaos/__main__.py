"""``python -m walle_stream.testing.chaos``: a campaign from the command line.

Exit codes: 0 every life equals the unkilled run, 1 a life differed, hung or failed, 2 wrong usage,
130 interrupted (continue with --resume).
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from walle_stream.errors import CampaignError, WalleError
from walle_stream.testing.chaos.campaign import Campaign
from walle_stream.testing.chaos.console import KillProgress, end_campaign, positive
from walle_stream.testing.chaos.plan import ChaosPlan, PartPlan
from walle_stream.testing.chaos.targets import TARGETS


def main() -> int:
    """Run a campaign and return the exit code."""
    parser = _parser()
    options = parser.parse_args()
    # like Ctrl-C: the current run is killed, and the campaign can be resumed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = ChaosPlan(
        pipeline=options.pipeline,
        # a later --set of the user overrides these
        overrides=(
            "spec.runtime.partitions=4",
            # make devices be written from time to time, from the journal and to free memory
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
            plan, folder, is_resumed=options.resume, on_kill=KillProgress(plan.kills).show
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
        how = f"continue by the same command with --folder {folder} --resume"
        print(f"\nchaos: interrupted; {how}", file=sys.stderr)
        return 130
    return end_campaign(report, options.json, folder, is_kept=bool(options.folder))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m walle_stream.testing.chaos",
        description="kill -9 a pipeline and compare its results with those of an unkilled run",
    )
    parser.add_argument("--kills", type=positive, default=500, help="kills of the target 'local'")
    parser.add_argument(
        "--target",
        type=_part,
        action="append",
        metavar="NAME=KILLS",
        help=f"instead of --kills, may be repeated: {', '.join(TARGETS)} or package.module:NAME",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=positive, default=2)
    parser.add_argument(
        "--mean-delay",
        type=_seconds,
        default=0.25,
        metavar="S",
        help="mean time between kills at random moments",
    )
    parser.add_argument("--pipeline", default="ipv")
    parser.add_argument(
        "--set", action="append", default=[], help="override like that of walle run"
    )
    parser.add_argument("--json", type=Path, help="file for the report")
    parser.add_argument("--folder", type=Path, help="folder for data directories and progress")
    parser.add_argument(
        "--resume", action="store_true", help="continue the campaign in --folder, or begin one"
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _part(text: str) -> PartPlan:
    name, _, kills = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"expected NAME=KILLS, found {text!r}")
    return PartPlan(name, positive(kills))


if __name__ == "__main__":
    raise SystemExit(main())
