"""``walle release publish``: a version from its tag to where releases and devices find it."""

import argparse
from pathlib import Path
from typing import Any

from walle_deploy.cli.options import add_releases


def add(commands: Any) -> None:
    """Add the command to a parser."""
    parser = commands.add_parser(
        "publish", help="build a version from its tag, sign it, and let releases know it"
    )
    parser.add_argument("ref", metavar="SCENARIO/TASK@VERSION")
    parser.add_argument(
        "--group", metavar="GROUP", help="folder or URL of the repositories (default: $WALLE_GROUP)"
    )
    parser.add_argument(
        "--repository", type=Path, required=True, metavar="FOLDER", help="of the signed files"
    )
    parser.add_argument(
        "--keys", type=Path, metavar="FOLDER", help="of its keys (default: FOLDER/keys)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="P",
        help="also check the script with this interpreter: 3.13, or a path; may be given again",
    )
    add_releases(parser, "; it is made if need be")
    parser.add_argument("--by", metavar="NAME", help="who does it (default: $USER)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run_publish)


def run_publish(options: argparse.Namespace) -> int:
    """Publish a version."""
    from walle_deploy.assembly.publishing import publish_tag  # noqa: PLC0415 - an extra
    from walle_deploy.cli.output import print_json, print_line  # noqa: PLC0415 - msgspec is heavy
    from walle_deploy.cli.release_api import given_releases  # noqa: PLC0415 - beside it
    from walle_deploy.model.names import TaskRef  # noqa: PLC0415 - beside it
    from walle_deploy.model.releases import VersionFiles  # noqa: PLC0415 - beside it
    from walle_deploy.service.operating import VERSIONS_PATH  # noqa: PLC0415 - beside it
    from walle_deploy.tasks.groups import Group  # noqa: PLC0415 - beside it
    from walle_deploy.trust.repository import TrustedRepository  # noqa: PLC0415 - an extra

    ref, group = TaskRef.parse(options.ref), Group.parse(options.group)
    with given_releases(options, make=True) as releases:

        def make_known(task: str, version: str, files: VersionFiles) -> None:
            by = options.by or ""
            releases.change(VERSIONS_PATH, task=task, version=version, files=files, by=by)

        repository = TrustedRepository(options.repository, options.keys)
        published = publish_tag(group, ref, repository, make_known, options.python)
    commit, files = published.commit, published.files
    if not print_json(options, {"ref": str(ref), "commit": commit, "files": files}):
        package = files.shared[0]
        own = f", exclusive files for {len(files.exclusive):,}" if files.exclusive else ""
        print_line(
            f"published {ref} of commit {commit[:12]}: {package.size_bytes:,} bytes, "
            f"SHA-256 {package.sha256[:12]}{own}"
        )
    return 0
