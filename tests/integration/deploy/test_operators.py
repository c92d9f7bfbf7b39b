"""People who work on releases at a real service: tokens, roles, a second person, a kept head."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

pytest.importorskip("jwt", reason="the extra `deploy` is not installed")

from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.store.opening import open_store
from walle_stream.cli.__main__ import main

pytestmark = pytest.mark.integration

SETUP = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: shop}
spec:
  poll: 20ms
  operators: {keys: who/keys.json, issuer: shop, secondPerson: SECOND}
"""
RELEASE = """\
apiVersion: walle/v1
kind: Release
metadata: {name: ipv-v1}
spec: {task: shop/ipv, version: v1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WALLE_TOKEN", "WALLE_SERVICE", "WALLE_RELEASES"):
        monkeypatch.delenv(name, raising=False)
    assert main(["token", "key", "who", "--issuer", "shop"]) == 0
    (tmp_path / "release.yaml").write_text(RELEASE)
    (tmp_path / "service.yaml").write_text(SETUP.replace("SECOND", "true"))
    with closing(open_store("releases.db")) as store:
        files = VersionFiles((PushedFile("t", "t", "0" * 64, 1),))
        ReleaseCommands(store, "setup").publish("shop/ipv", "v1", files)
    return tmp_path


@pytest.fixture
def walle(folder, capfd):
    """Returns exit code, standard output, standard error."""

    def run(*arguments):
        capfd.readouterr()
        code = main([str(each) for each in arguments])
        return code, *capfd.readouterr()

    for name, role in (("ann", "author"), ("bob", "approver"), ("eve", "viewer")):
        made = run("token", "sign", "who/signing.json", "--operator", name, "--role", role)
        (folder / f"{name}.token").write_text(made[1])
    return run


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def served(folder, port, **environ):
    command = [sys.executable, "-m", "walle_stream.cli", "serve", "service.yaml", "--json"]
    command += ["--store", "releases.db", "--files", "http://127.0.0.1:9/"]
    process = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environ},
    )  # fmt: skip
    try:
        line = json.loads(process.stdout.readline())
        assert line["operators"] is True
        yield process
    finally:
        process.terminate()
        process.communicate()


def test_a_team_from_a_release_to_a_kept_head(folder, walle):
    port = free_port()
    ann, bob, eve = (
        ("--service", f"http://127.0.0.1:{port}", "--token", f"{name}.token")
        for name in ("ann", "bob", "eve")
    )
    with served(folder, port):
        assert walle("release", "create", "release.yaml", *eve)[0] == 16
        code, said, _ = walle("release", "create", "release.yaml", *ann, "--why", "first")
        assert (code, said) == (0, "release ipv-v1: shop/ipv@v1, created (revision 1)\n")
        assert "another person" in walle("release", "status", "ipv-v1", *eve)[1]
        code, _, said = walle("release", "approve", "ipv-v1", *ann)
        assert (code, "needs the role approver" in said) == (16, True)
        with (
            closing(sqlite3.connect("releases.db")) as now,
            closing(sqlite3.connect("yesterday.db")) as then,
        ):
            now.backup(then)
        command = [sys.executable, "-m", "walle_stream.cli", "release", "approve", "ipv-v1", *bob]
        assert subprocess.run(command, check=False, capture_output=True).returncode == 0
        code, said, _ = walle("release", "audit", "ipv-v1", *eve, "--json")
        entries = [json.loads(line) for line in said.splitlines()]
        assert [(e["by"], e["role"], e["verified"]) for e in entries[:2]] == [
            ("ann", "author", True),
            ("bob", "approver", True),
        ]
        head = walle("release", "audit", "--head", "--sign", "who/signing.json", *eve)[1]
        (folder / "head.jwt").write_text(head)
        check = ("release", "audit", "--against", "head.jwt", "--keys", "who/keys.json")
        code, said, _ = walle(*check, *eve)
        assert (code, said.startswith("the chain contains the saved head")) == (0, True)
        # past the service, by who has the store: the same routes, so the same tokens
        local = ("--store", "releases.db")
        assert walle("release", "rollback", "ipv-v1", *local)[0] == 16
        assert walle("release", "rollback", "ipv-v1", *local, "--token", "eve.token")[0] == 16
        own = ("--operator-key", "who/signing.json", "--by", "carol")
        assert walle("release", "rollback", "ipv-v1", *local, *own)[0] == 0
        # a stop where no device had it yet, else a rollback
        last = walle("release", "audit", "ipv-v1", *eve, "--json")[1].splitlines()[-1]
        assert json.loads(last)["by"] == "carol"
    for each in folder.glob("releases.db*"):
        each.unlink()
    shutil.copy("yesterday.db", "releases.db")
    with served(folder, port):
        code, said, problem = walle(*check, *eve)
        assert (code, said) == (17, "")
        assert len(problem.splitlines()) == 1
        assert "rewritten or cut off" in problem


def test_a_service_that_dies_between_commit_and_answer_does_it_once(folder, walle):
    port = free_port()
    at = ("--service", f"http://127.0.0.1:{port}")
    with served(folder, port):
        created = ("release", "create", "release.yaml", *at, "--token", "ann.token")
        assert walle(*created)[0] == 0
    with served(folder, port, WALLE_CRASH="change.after:1") as dying:
        command = [sys.executable, "-m", "walle_stream.cli", "release", "approve", "ipv-v1"]
        asking = subprocess.Popen(
            [*command, *at, "--token", "bob.token"], stdout=subprocess.PIPE, text=True
        )
        dying.wait()
    with served(folder, port):
        said, _ = asking.communicate()
        assert (asking.returncode, "shop/ipv@v1" in said) == (0, True)
        log = walle("release", "audit", *at, "--token", "eve.token", "--json")[1]
    actions = [json.loads(line)["action"] for line in log.splitlines()]
    assert actions.count("approve") == 1


def test_what_does_not_answer_is_said_in_one_line(walle):
    nobody = ("--service", f"http://127.0.0.1:{free_port()}", "--token", "ann.token")
    code, said, problem = walle("release", "pause", "ipv-v1", *nobody)
    assert (code, said, len(problem.splitlines())) == (19, "", 1)
    for wrong in ("ftp://x", "http://127.0.0.1:1/path", "nonsense"):
        assert walle("release", "status", "--service", wrong)[0] == 3
