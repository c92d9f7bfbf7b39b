"""``python -m walle_deploy.testing.chaos``: kill the release platform from the command line.

Exit codes: 0 every life ended without a finding, 1 a finding, a hang or a failure, 2 wrong
usage, 130 interrupted.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from walle_deploy.testing.chaos.campaign import ReleaseCampaign
from walle_deploy.testing.chaos.plan import WorldPlan
from walle_stream.errors import WalleError
from walle_stream.testing.chaos.console import KillProgress, end_campaign, positive


def main() -> int:
    """Run a campaign; return the exit code."""
    options = _parser().parse_args()
    # like Ctrl-C: running processes are killed on the way out
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="walle-chaos-"))
    plan = WorldPlan(
        seed=options.seed, hosts=options.hosts, devices=options.devices, kills=options.life
    )
    campaign = ReleaseCampaign(plan, folder, KillProgress(options.kills).show)
    try:
        report = campaign.run(options.kills)
    except WalleError as error:
        print(f"\nchaos: {error} (everything is in {folder})", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"\nchaos: interrupted; everything is in {folder}", file=sys.stderr)
        return 130
    return end_campaign(report, options.json, folder, is_kept=bool(options.folder))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m walle_deploy.testing.chaos", description="kill -9 the release platform"
    )
    parser.add_argument("--kills", type=positive, default=200, help="kills in total (200)")
    parser.add_argument(
        "--life", type=positive, default=20, metavar="KILLS", help="kills in one life (20)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=positive, default=3)
    parser.add_argument(
        "--devices", type=positive, default=60, help="devices of all hosts together (60)"
    )
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--folder", type=Path, help="folder for the worlds; it is kept")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
