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
    "resume": "let a paused release go on",
    "approve": "let a release begin that another person created",
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
        "--supersede", action="store_true", help="end the one that is in progress for the task"
    )
    adopt = verbs.add_parser(
        "adopt",
        help="make a published version the stable one of a task that no release brought: that "
        "which devices have already",
    )
    adopt.add_argument("ref", metavar="SCENARIO/TASK@VERSION")
    status = verbs.add_parser("status", help="where releases stand, what their gates say")
    status.add_argument("release", nargs="?", metavar="RELEASE", help="only this one, in full")
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
            help="refuse it where somebody changed the release since this revision",
        )
    audit = verbs.add_parser("audit", help="the audit log; checks it first")
    audit.add_argument("release", nargs="?", default="", metavar="RELEASE", help="only this one's")
    audit.add_argument(
        "--head", action="store_true", help="only its end, NUMBER:HASH, to be kept elsewhere"
    )
    audit.add_argument(
        "--sign", type=Path, metavar="FILE", help="with --head: signing.json of walle token key"
    )
    audit.add_argument(
        "--expect", type=_head, metavar="NUMBER:HASH", help="an end that was kept: must be in it"
    )
    audit.add_argument(
        "--against", type=Path, metavar="FILE", help="only whether an end that --head gave is in it"
    )
    audit.add_argument(
        "--keys", type=Path, metavar="FILE", help="with --against: keys.json of who signed it"
    )
    for name, verb in verbs.choices.items():
        if verb.get_default("run") is None:
            _add_shared(name, verb)


def _add_shared(name: str, verb: argparse.ArgumentParser) -> None:
    add_releases(verb)
    verb.add_argument("--json", action="store_true", help="one JSON object per line")
    if name in _CHANGING:
        verb.add_argument("--by", metavar="NAME", help="who does it (default: $USER)")
        verb.add_argument("--why", default="", metavar="TEXT", help="for the audit log")
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
