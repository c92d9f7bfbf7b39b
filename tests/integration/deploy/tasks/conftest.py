"""A group of real git repositories, and authors with folders of their own."""

import os
import subprocess
from pathlib import Path

import pytest

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.cloning import checkout_task, init_task
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.tagging import tag_version

IPV = TaskRef("shop", "ipv")


class Bench:
    """A group, a cache, and commands on them as a person gives them."""

    def __init__(self, root):
        self.root, self.cache = root, root / "cache"
        self.group = Group.parse(str(root / "group"))
        self.bare = root / "group/shop.git"

    def begin(self, name="ada"):
        return init_task(self.group, IPV, self.root / name).folder

    def author(self, name):
        return checkout_task(self.group, IPV, self.root / name).folder

    def commit(self, folder, files, **options):
        for path, content in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return commit_folder(folder, **options)

    def version(self, folder, version, files=()):
        if files:
            self.commit(folder, files)
        return tag_version(folder, version).ref

    def git(self, *arguments, folder=None, given=b""):
        """Plain git, as somebody without walle runs it."""
        command = ["git", "-C", str(folder or self.bare), *map(str, arguments)]
        done = subprocess.run(command, input=given, capture_output=True, check=True)
        return done.stdout.decode(errors="replace").strip()

    def push_tree(self, entries, version="v9"):
        """Make a version of any tree: (mode, name, content or object id)."""
        lines = []
        for mode, name, content in entries:
            oid = content
            if isinstance(content, bytes):
                oid = self.git("hash-object", "-w", "--stdin", given=content)
            kind = "commit" if mode == "160000" else "tree" if mode == "040000" else "blob"
            lines.append(f"{mode} {kind} {oid}\t".encode() + os.fsencode(name) + b"\0")
        tree = self.git("mktree", "-z", "--missing", given=b"".join(lines))
        commit = self.git("commit-tree", tree, "-m", "any")
        self.git("tag", "-a", "-m", "any", f"ipv/{version}", commit)
        return TaskRef("shop", "ipv", version)


@pytest.fixture(autouse=True)
def _somebody(tmp_path, monkeypatch):
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\n name = Ada\n email = ada@example.org\n")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("WALLE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def somebody(tmp_path, monkeypatch):
    """Become another author."""

    def become(name):
        text = f"[user]\n name = {name}\n email = {name.lower()}@example.org\n"
        Path(tmp_path / "gitconfig").write_text(text)

    return become
