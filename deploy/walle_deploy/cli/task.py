"""``walle task init|checkout|commit|test|tag|list|log|diff``, and ``build`` from a version."""

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from walle_deploy.cli.options import bounded

_READING: Final = {"list", "log", "diff", "build"}


def add(verbs: Any) -> None:
    """Add the verbs to ``walle task``; an entry point of ``walle_stream.task_commands``."""
    init = verbs.add_parser("init", help="make a task: branch, definition, script, sample, test")
    init.add_argument("ref", metavar="SCENARIO/TASK")
    checkout = verbs.add_parser(
        "checkout", help="put a task or version into a folder, or update it"
    )
    checkout.add_argument("ref", metavar="SCENARIO/TASK[@VERSION]")
    for verb in (init, checkout):
        verb.add_argument(
            "folder", type=Path, nargs="?", metavar="DIR", help="default: the task's name"
        )
    commit = verbs.add_parser("commit", help="check the folder, commit all of it, push it")
    commit.add_argument("--rebase", action="store_true", help="go on top of others' commits")
    tag = verbs.add_parser("tag", help="make a version of the last commit")
    tag.add_argument("version", metavar="VERSION", help="such as v2")
    for verb in (commit, tag):
        verb.add_argument("-m", "--message", default="", metavar="TEXT", help="the message")
        verb.add_argument(
            "folder", type=Path, nargs="?", default=Path(), metavar="DIR", help="default: here"
        )
    test = verbs.add_parser("test", help="check a task, run its sample and tests; runs its code")
    test.add_argument("what", nargs="?", default=".", metavar="DIR|REF", help="default: here")
    listed = verbs.add_parser("list", help="list scenarios, tasks and versions")
    listed.add_argument("scenario", nargs="*", metavar="SCENARIO", help="default: all")
    log = verbs.add_parser("log", help="show the commits of a task, or up to a version")
    log.add_argument("ref", nargs="?", metavar="REF", help="default: task of this folder")
    log.add_argument(
        "-n", "--count", type=bounded(int, 1, 10**9), metavar="N", help="only the last N"
    )
    diff = verbs.add_parser("diff", help="show differences of files and audiences")
    diff.add_argument(
        "refs", nargs="*", metavar="A B", help="default: the folder here and its last commit"
    )
    for name in ("init", "checkout", "commit", "tag", "test", "list", "log", "diff"):
        verb = verbs.choices[name]
        verb.add_argument("--json", action="store_true", help="one JSON object on one line")
        verb.set_defaults(run=partial(_run, name))
    build = verbs.choices["build"]
    build.set_defaults(run=partial(_build, build.get_default("run")))
    for verb in (init, checkout, test, listed, log, diff, build):
        verb.add_argument(
            "--group",
            metavar="GROUP",
            help="folder or URL of the repositories (default: $WALLE_GROUP)",
        )


def _run(name: str, options: argparse.Namespace) -> int:
    module = "reading" if name in _READING else "authoring"
    verbs = import_module(f"walle_deploy.cli.task_{module}")
    return int(getattr(verbs, f"run_{name}")(options))


def _build(of_file: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    return _run("build", options) if _is_ref(options.file) else of_file(options)


def _is_ref(text: str) -> bool:
    from walle_deploy.model.names import TaskRef  # noqa: PLC0415 - heavy
    from walle_stream.errors import RefNotFoundError  # noqa: PLC0415 - beside it

    try:
        TaskRef.parse(text)
    except RefNotFoundError:
        # a wrong version is refused as a version, not as a missing file
        return "@" in text and not Path(text).exists()
    return not Path(text).exists()
