"""``walle release``: commands that bring versions to devices, and show the progress."""

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from walle_deploy.cli import dry_run, publish, simulate
from walle_deploy.cli.options import add_releases, bounded
from walle_stream.errors import DeployError
from walle_stream.errors.extras import how_to_install

_CHANGES: Final = {
    "pause": "stop the progress; devices keep what they have",
    "resume": "continue a paused release",
    "approve": "let another person's release begin",
    "advance": "begin the next step now, whatever this one waits for",
    "rollback": "take the version back from all devices",
}
_CHANGING: Final = frozenset({"create", "adopt", *_CHANGES})


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    release = commands.add_parser("release", help="bring a version to devices, step by step")
    verbs = release.add_subparsers(title="verbs", metavar="VERB", required=True)
    publish.add(verbs)
    dry_run.add(verbs)
    simulate.add(verbs)
    add_verbs(verbs)


def add_verbs(verbs: Any) -> None:
    """Add the sub-commands that ask a service or a store."""
    create = verbs.add_parser("create", help="begin a release")
    create.add_argument("file", type=Path, metavar="FILE", help="YAML of the kind Release")
    create.add_argument(
        "--supersede", action="store_true", help="end the task's release in progress"
    )
    adopt = verbs.add_parser(
        "adopt",
        help="make a published version the stable one, for a task that devices already have",
    )
    adopt.add_argument("ref", metavar="SCENARIO/TASK@VERSION")
    status = verbs.add_parser("status", help="show the state of releases and their gates")
    status.add_argument("release", nargs="?", metavar="RELEASE", help="only this release, in full")
    watch = verbs.add_parser("watch", help="follow a release until it ends")
    watch.add_argument("release", metavar="RELEASE")
    watch.add_argument(
        "--every",
        type=bounded(float, 0.01, 3_600, "seconds"),
        default=1.0,
        metavar="S",
        help="seconds between looks (1)",
    )
    for name, text in _CHANGES.items():
        change = verbs.add_parser(name, help=text)
        change.add_argument("release", metavar="RELEASE")
        change.add_argument(
            "--revision",
            type=int,
            metavar="N",
            help="refuse the change if the release was changed after this revision",
        )
    audit = verbs.add_parser("audit", help="check the audit log and print it")
    audit.add_argument(
        "release", nargs="?", default="", metavar="RELEASE", help="only this release's"
    )
    audit.add_argument(
        "--head", action="store_true", help="only the head, NUMBER:HASH, to store elsewhere"
    )
    audit.add_argument(
        "--sign", type=Path, metavar="FILE", help="with --head: signing.json of walle token key"
    )
    audit.add_argument(
        "--expect", type=_head, metavar="NUMBER:HASH", help="stored head that the log must contain"
    )
    audit.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="only check that the log contains the signed head in FILE",
    )
    audit.add_argument(
        "--keys", type=Path, metavar="FILE", help="with --against: keys.json of the head's signer"
    )
    for name, verb in verbs.choices.items():
        if verb.get_default("run") is None:
            _add_shared(name, verb)


def _add_shared(name: str, verb: argparse.ArgumentParser) -> None:
    add_releases(verb)
    verb.add_argument("--json", action="store_true", help="one JSON object per line")
    if name in _CHANGING:
        verb.add_argument("--by", metavar="NAME", help="your name (default: $USER)")
        verb.add_argument("--why", default="", metavar="TEXT", help="reason for the audit log")
    verb.set_defaults(run=_run, verb=name)


def _run(options: argparse.Namespace) -> int:
    function = "run_change" if options.verb in _CHANGES else f"run_{options.verb}"
    try:
        point = import_module("walle_deploy.cli.release_verbs")
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: {how_to_install('deploy')}"
        raise DeployError(missing) from error
    return int(getattr(point, function)(options))


def _head(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(":")
    if not (number.isascii() and number.isdecimal() and digest):
        raise argparse.ArgumentTypeError(f"{text!r} is not NUMBER:HASH, as audit --head prints it")
    return int(number), digest
