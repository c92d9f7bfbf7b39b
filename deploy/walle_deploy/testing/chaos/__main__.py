"""``python -m walle_deploy.testing.chaos``: kill the release platform from the command line.

Exit codes: 0 everything was right at the end of every life, 1 something was wrong, hung or
failed, 2 wrong usage, 130 interrupted.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from walle_deploy.testing.chaos.campaign import ReleaseCampaign
from walle_deploy.testing.chaos.plan import WorldPlan
from walle_stream.clock import monotonic_ms
from walle_stream.errors import WalleError
from walle_stream.testing.chaos.report import FaultReport, render

_BAR = 30


def main() -> int:
    """Run a campaign; returns the exit code."""
    options = _parser().parse_args()
    # as Ctrl-C: what runs is killed on the way out
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="walle-chaos-"))
    plan = WorldPlan(
        seed=options.seed, hosts=options.hosts, devices=options.devices, kills=options.life
    )
    campaign = ReleaseCampaign(plan, folder, _Progress(options.kills).show)
    try:
        report = campaign.run(options.kills)
    except WalleError as error:
        print(f"\nchaos: {error} (everything is in {folder})", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"\nchaos: interrupted; everything is in {folder}", file=sys.stderr)
        return 130
    if options.json:
        options.json.write_bytes(report.to_json())
    print(render(report))
    if report.mismatches:
        print(f"chaos: the lives that were wrong are in {folder}", file=sys.stderr)
        return 1
    if not options.folder:
        shutil.rmtree(folder)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m walle_deploy.testing.chaos", description="kill -9 the release platform"
    )
    parser.add_argument("--kills", type=_count, default=200, help="in all (200)")
    parser.add_argument("--life", type=_count, default=20, metavar="KILLS", help="of one life (20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=_count, default=3)
    parser.add_argument("--devices", type=_count, default=60, help="of all hosts together (60)")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--folder", type=Path, help="for the worlds; kept")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)


class _Progress:
    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._started_ms = monotonic_ms()
        self._shown = -1

    def show(self, report: FaultReport) -> None:
        done = min(report.kills, self._wanted)
        filled = done * _BAR // self._wanted
        line = f"[{'#' * filled:<{_BAR}}] {report.kills}/{self._wanted} kills"
        line += f", life {sum(each.lives for each in report.parts)}"
        if done:
            each_ms = (monotonic_ms() - self._started_ms) / done
            line += f", {each_ms * (self._wanted - done) / 60_000:.0f} min to go "
        if sys.stderr.isatty():
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
        elif filled > self._shown:
            self._shown = filled
            print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
