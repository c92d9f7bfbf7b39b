"""``make chaos-cluster``: break clusters under a live feed, and compare every feature.

Exit codes are those of the other campaigns; one that is begun again with its folder goes on with
the life that was not over.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.cluster.chaos.life import live
from tests.cluster.chaos.plan import ClusterPlan, lives_of
from tests.cluster.chaos.report import ClusterPart, ClusterReport, render_silences
from tests.cluster.engine import why_missing
from tests.cluster.pipeline import NAME
from tests.s3 import find_server
from walle_stream.clock import wall_ms
from walle_stream.errors import CampaignError
from walle_stream.store.files import put_file
from walle_stream.testing.chaos.console import end_campaign, positive
from walle_stream.testing.chaos.ledger import lock_folder
from walle_stream.testing.chaos.report import these_versions, this_machine

_LEDGER = "campaign.json"


def main() -> int:
    """Run a campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos-cluster", description=__doc__)
    parser.add_argument("--faults", type=positive, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--folder", type=Path, help="for progress, and for logs of what was wrong")
    options = parser.parse_args()
    program, reason = find_server(), why_missing()  # type: ignore[no-untyped-call]
    if reason or program is None:
        print(reason or "no S3 server here: .ci/s3.sh builds it", file=sys.stderr)
        return 2
    folder = options.folder or Path(tempfile.mkdtemp(prefix="walle-chaos-cluster-"))
    try:
        report = _run(ClusterPlan(options.faults, options.seed), folder, program)
    except CampaignError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(
            f"\nchaos: interrupted; the same command with --folder {folder} goes on",
            file=sys.stderr,
        )
        return 130
    code = end_campaign(report, options.json, folder, is_kept=bool(options.folder))
    print(render_silences(report.parts))
    return code


def _run(plan: ClusterPlan, folder: Path, program: str) -> ClusterReport:
    folder.mkdir(parents=True, exist_ok=True)
    lock_folder(folder)  # until this process ends
    ledger, lives = folder / _LEDGER, lives_of(plan)
    report = _found(ledger, plan)
    for life in lives[report.lives :]:
        part = next(each for each in report.parts if each.target == _target(life.standbys))
        own, began_s = folder / f"life-{life.number}", time.monotonic()
        shutil.rmtree(own, ignore_errors=True)
        print(f"life {life.number} of {len(lives)}, {_target(life.standbys)}", flush=True)
        part.take(life, live(own, program, life, plan.seed))
        part.wall_s = round(part.wall_s + time.monotonic() - began_s, 1)
        if report.mismatches:
            return report
        report.lives += 1
        put_file(ledger, report.to_json())
    ledger.unlink()
    return report


def _found(ledger: Path, plan: ClusterPlan) -> ClusterReport:
    if not ledger.exists():
        wanted = {
            standbys: sum(len(each.faults) for each in lives_of(plan) if each.standbys == standbys)
            for standbys in (1, 0)
        }
        return ClusterReport(
            pipeline=NAME,
            seed=plan.seed,
            date=time.strftime("%Y-%m-%d", time.gmtime(wall_ms() / 1000.0)),
            machine=this_machine(),
            versions=these_versions(),
            parts=[
                ClusterPart(target=_target(standbys), wanted=count)
                for standbys, count in wanted.items()
            ],
            proof="features and devices: those of the run that nobody disturbed",
            plan=plan,
        )
    report = msgspec.json.decode(ledger.read_bytes(), type=ClusterReport)
    if report.plan != plan:
        raise CampaignError(f"{ledger} is of another plan ({report.plan}): give another --folder")
    report.resumes += 1
    return report


def _target(standbys: int) -> str:
    return f"cluster, standbys {standbys}"


if __name__ == "__main__":
    raise SystemExit(main())
