"""Kills commands in the middle, at every git command that changes something: driven by a test.

``kill_driver.py FOLDER``: a process without threads, so that it can fork. Each child runs one
command in a process group of its own. The group is killed after the N-th git command that changes
something, or by a hook while its git holds its own lock. Then the same command
is given again, as a person would. Prints a JSON object per kill.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks import git as git_module
from walle_deploy.tasks.cloning import checkout_task, init_task
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.git import Git
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.tagging import tag_version
from walle_stream.errors import WalleError

IPV = TaskRef("shop", "ipv")
CHANGING = {
    *("init", "push", "update-ref", "read-tree", "symbolic-ref", "checkout-index"),
}
HOOK = '#!/bin/sh\n[ "$1" = prepared ] && kill -9 0\nexit 0\n'


class Killer:
    """In the place of ``subprocess.run`` in a child: counts, and ends everything."""

    def __init__(self, at):
        self.left, self.real = at, git_module.subprocess.run

    def __call__(self, command, **options):
        done = self.real(command, **options)
        if CHANGING & {*command}:
            self.left -= 1
            if self.left == 0:
                os.killpg(0, signal.SIGKILL)
        return done


def child_of(action, at):
    """Run an action until it is killed; say whether it was."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        if at:
            git_module.subprocess.run = Killer(at)
        try:
            action()
        except WalleError as error:
            print(f"child: {error}", file=sys.stderr)
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status


class Case:
    """A command, what it begins with, and what must be true when it was given again."""

    def __init__(self, root, name):
        self.name, self.root = name, root
        self.group = Group.parse(str(root / "group"))
        self.folder = root / "ada"
        if name == "init":
            return
        init_task(self.group, IPV, self.folder)
        if name in {"rebase", "checkout"}:
            other = root / "bea"
            shutil.copytree(self.folder, other)
            (other / "theirs.txt").write_text("theirs")
            (other / "script.py").write_text((other / "script.py").read_text() + "# theirs\n")
            commit_folder(other, "theirs")
        if name == "rebase":
            (self.folder / "mine.txt").write_text("mine")

    def act(self):
        match self.name:
            case "init":
                init_task(self.group, IPV, self.folder)
            case "tag":
                tag_version(self.folder, "v1")
            case "checkout":
                os.environ["WALLE_CACHE"] = str(self.root / "cache")
                checkout_task(self.group, IPV, self.folder)
            case _:
                commit_folder(self.folder, "mine", rebase=True)

    def state(self):
        """What must be the same however it came to be."""
        bare = Git(self.root / "group/shop.git")
        here = Git(self.folder / ".git", work_tree=self.folder)
        lines = bare.line("for-each-ref", "--format=%(refname) %(objecttype) %(objectname) %(tree)")
        refs = [line.split(" ") for line in lines.splitlines()]
        tip, tree = next(rest for name, _, *rest in refs if name == "refs/heads/ipv")
        status = here.line("status", "--porcelain=v2", "--branch").splitlines()
        tags = here.line("for-each-ref", "--format=%(refname) %(objecttype)", "refs/tags")
        return {
            "refs": [f"{name} {kind}" for name, kind, *_ in refs],
            "tip": tree,
            "subjects": bare.line("log", "--format=%s", "ipv").splitlines(),
            "same": f"# branch.oid {tip}" in status,
            "clean": all(line.startswith("#") for line in status),
            "tags": tags.splitlines(),
            "left": sorted(
                str(path.relative_to(self.root))
                for path in self.root.rglob("*")
                if path.name.startswith((".ada", ".shop")) or path.name.endswith(".lock")
                if path.name != "walle.lock"
            ),
        }


def run_case(root, name, at, when):
    case_root = root / f"{name}-{at}-{when}"
    shutil.copytree(root / f"{name}-ready", case_root, symlinks=True)
    # a clone names its group by its place
    case = Case.__new__(Case)
    case.name, case.root, case.folder = name, case_root, case_root / "ada"
    case.group = Group.parse(str(case_root / "group"))
    config = case.folder / ".git/config"
    if config.exists():
        config.write_text(config.read_text().replace(f"{root}/{name}-ready", str(case_root)))
    hook = case_root / "group/shop.git/hooks/reference-transaction"
    if when == "inside":
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(HOOK)
        hook.chmod(0o755)
    was_killed = child_of(case.act, 0 if when == "inside" else at) == signal.SIGKILL
    locks = [path.name for path in case_root.rglob("*.lock") if path.name != "walle.lock"]
    hook.unlink(missing_ok=True)
    code = os.waitstatus_to_exitcode(child_of(case.act, 0))
    facts = {"case": name, "at": at, "when": when, "killed": was_killed, "again": code}
    print(json.dumps(facts | {"locks": locks, "state": case.state()}), flush=True)
    shutil.rmtree(case_root)
    return was_killed


def main():
    root = Path(sys.argv[1])
    for name in sys.argv[2:]:
        (root / f"{name}-ready").mkdir()
        Case(root / f"{name}-ready", name)
        at = 1
        while run_case(root, name, at, "after"):
            at += 1
        if name in {"rebase", "tag"}:
            run_case(root, name, 1, "inside")


if __name__ == "__main__":
    main()
