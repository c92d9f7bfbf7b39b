"""``walle release publish``: build a version from its tag, and make it available."""

import argparse
from pathlib import Path
from typing import Any

from walle_deploy.cli.options import add_releases


def add(commands: Any) -> None:
    """Add the command to a parser."""
    parser = commands.add_parser(
        "publish", help="build a version from its tag, sign it, and make it known for releases"
    )
    parser.add_argument("ref", metavar="SCENARIO/TASK@VERSION")
    parser.add_argument(
        "--group", metavar="GROUP", help="folder or URL of the repositories (default: $WALLE_GROUP)"
    )
    parser.add_argument(
        "--repository",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the signed files",
    )
    parser.add_argument(
        "--keys", type=Path, metavar="FOLDER", help="folder of its keys (default: FOLDER/keys)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="P",
        help="also check the script with this interpreter: 3.13, or a path; may be given again",
    )
    add_releases(parser, "; made if missing")
    parser.add_argument("--by", metavar="NAME", help="your name (default: $USER)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run_publish)


def run_publish(options: argparse.Namespace) -> int:
    """Build a version from its tag, sign it, and make it known for releases; blocks.

    A repetition, also after a kill in the middle, changes nothing that exists.

    Raises:
        ConflictError: The version was published with other files, or its tag was moved.
        WalleError: The version cannot be built or signed, or the store does not answer.
    """
    from walle_deploy.cli.output import print_json, print_line  # noqa: PLC0415 - msgspec is heavy
    from walle_deploy.cli.release_api import given_releases  # noqa: PLC0415 - beside it
    from walle_deploy.model.names import TaskRef  # noqa: PLC0415 - beside it
    from walle_deploy.service.operating import VERSIONS_PATH  # noqa: PLC0415 - beside it
    from walle_deploy.tasks.building import build_version  # noqa: PLC0415 - beside it
    from walle_deploy.tasks.groups import Group  # noqa: PLC0415 - beside it
    from walle_deploy.trust.publishing import (  # noqa: PLC0415 - an extra
        ExclusiveFile,
        publish_version,
    )
    from walle_deploy.trust.repository import TrustedRepository  # noqa: PLC0415 - the same
    from walle_stream.faults import crash_point  # noqa: PLC0415 - beside it

    ref, group = TaskRef.parse(options.ref), Group.parse(options.group)
    with given_releases(options, make=True) as releases:
        repository = TrustedRepository(options.repository, options.keys)
        built = build_version(group, ref, options.python)
        crash_point("publish.built")
        exclusive = [
            ExclusiveFile(owner, file.resource, built.contents[file.target])
            for owner, own in built.files.exclusive.items()
            for file in own
        ]
        files = publish_version(repository, ref, built.package, exclusive)
        crash_point("publish.signed")
        change = {"task": ref.name, "version": ref.version, "files": files}
        releases.change(VERSIONS_PATH, **change, by=options.by or "")
    if not print_json(options, {"ref": str(ref), "commit": built.commit, "files": files}):
        package = files.shared[0]
        own = f", exclusive files for {len(files.exclusive):,}" if files.exclusive else ""
        print_line(
            f"published {ref} of commit {built.commit[:12]}: {package.size_bytes:,} bytes, "
            f"SHA-256 {package.sha256[:12]}{own}"
        )
    return 0
