"""The mode of authentication that a run takes over from the cluster that it joins."""

import os
from pathlib import Path

import pytest

from walle_stream.app.ray import auth
from walle_stream.app.ray.auth import MODE, adopt_auth_mode


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without processes, and a user without tokens."""
    for name in (MODE, *auth._TOKENS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(auth, "_PROC", tmp_path / "proc")
    monkeypatch.setitem(os.environ, MODE, "")  # what a test sets goes with it
    return tmp_path


def process(machine: Path, pid: int, *arguments: str, mode: str = "") -> None:
    folder = machine / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"\0".join(each.encode() for each in arguments))
    environ = f"PATH=/bin\0{MODE}={mode}" if mode else "PATH=/bin"
    (folder / "environ").write_bytes(environ.encode())


def raylet(machine: Path, pid: int, port: int, mode: str = "") -> None:
    process(machine, pid, "/x/raylet", f"--gcs-address=192.0.2.2:{port}", mode=mode)


def test_the_mode_is_that_of_the_clusters_raylet(machine: Path) -> None:
    process(machine, 1, "/sbin/init", mode="token")
    raylet(machine, 7, 6379, "token")
    raylet(machine, 8, 16379)
    adopt_auth_mode("127.0.0.1:6379")
    assert os.environ[MODE] == "token"
    os.environ[MODE] = ""
    adopt_auth_mode("127.0.0.1:16379")
    assert os.environ[MODE] == "disabled"


@pytest.mark.parametrize(("modes", "expected"), [(["token"], "token"), (["token", ""], "")])
def test_auto_takes_what_all_clusters_here_have(
    machine: Path, modes: list[str], expected: str
) -> None:
    for pid, mode in enumerate(modes):
        raylet(machine, pid, 6379 + pid, mode)
    adopt_auth_mode("auto")
    assert os.environ[MODE] == expected


@pytest.mark.parametrize("has_token", [False, True])
def test_where_no_raylet_can_be_seen_a_token_is_shown_if_there_is_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch, *, has_token: bool
) -> None:
    if has_token:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    adopt_auth_mode("127.0.0.1:6379")
    assert os.environ[MODE] == ("token" if has_token else "")


def test_what_the_user_says_stays(machine: Path) -> None:
    raylet(machine, 7, 6379, "token")
    os.environ[MODE] = "disabled"
    adopt_auth_mode("127.0.0.1:6379")
    assert os.environ[MODE] == "disabled"
