import pytest

from walle_deploy.tasks import git as git_module
from walle_deploy.tasks.git import Git, last_line
from walle_stream.errors import GitError


def test_nothing_of_the_user_but_who_they_are_reaches_git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada")
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i key")
    git = Git(tmp_path)
    here, far = git.variables(is_network=False), git.variables(is_network=True)
    assert not {"GIT_DIR", "GIT_CONFIG_COUNT"} & {*here, *far}
    assert here["GIT_AUTHOR_NAME"] == "Ada"
    assert far["GIT_SSH_COMMAND"] == "ssh -i key"
    assert here["GIT_TERMINAL_PROMPT"] == "0"
    assert here["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert far.get("GIT_CONFIG_GLOBAL") != "/dev/null"
    assert "ext" not in here["GIT_ALLOW_PROTOCOL"].split(":")


def test_what_git_says_is_one_printable_line():
    assert last_line(b"") == ""
    assert last_line(b"Cloning\nfatal: no \x1b[31mred\nhint: try\n") == "fatal: no ?[31mred"
    said = (
        b"ssh: connect to host h port 22: refused\nfatal: Could not read from remote repository.\n"
    )
    assert last_line(said) == "ssh: connect to host h port 22: refused"
    assert last_line(b"one\ntwo\nhint: three\n") == "two"
    assert len(last_line(b"fatal: " + b"x" * 9_000)) == 300


def test_a_command_that_fails_or_takes_too_long_is_an_error(tmp_path, monkeypatch):
    git = Git(tmp_path)
    with pytest.raises(GitError, match="git rev-parse: fatal: not a git repository"):
        git.run("rev-parse", "HEAD")
    monkeypatch.setattr(git_module, "LOCAL_TIMEOUT_S", 0.01)
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(GitError, match=r"git add did not end within 0\.01 s"):
        git.run("add")
