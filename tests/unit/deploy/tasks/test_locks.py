import os

import pytest

from walle_deploy.tasks.locks import RepositoryLock
from walle_stream.errors import ConflictError, GitError


def test_one_command_at_a_time(tmp_path):
    with (
        RepositoryLock(tmp_path),
        pytest.raises(ConflictError, match="another walle command has worked in"),
        RepositoryLock(tmp_path, wait_s=0),
    ):
        pass
    with RepositoryLock(tmp_path, wait_s=0) as lock:
        assert lock.left == {}


def die_with(lock):
    """What a kill leaves: the lock is free, the note is there."""
    os.close(lock.descriptor)


def test_what_a_killed_command_was_doing_is_told_until_somebody_takes_it_up(tmp_path):
    lock = RepositoryLock(tmp_path).__enter__()
    lock.note({"do": "a longer one than the next"})
    lock.note({"do": "push"})
    die_with(lock)
    for _ in range(2):
        with RepositoryLock(tmp_path) as after:
            assert after.left == {"do": "push"}
    with RepositoryLock(tmp_path) as after:
        after.note({})
    with RepositoryLock(tmp_path) as after:
        assert after.left == {}


def test_a_push_whose_end_nobody_knows_stays_noted(tmp_path):
    lock = RepositoryLock(tmp_path).__enter__()
    lock.note({"do": "push"})
    lock.__exit__(GitError, GitError("no answer"), None)
    with RepositoryLock(tmp_path) as after:
        assert after.left == {"do": "push"}


def test_only_locks_of_git_that_a_killed_command_made_are_taken_away(tmp_path):
    (tmp_path / "refs/heads").mkdir(parents=True)
    old = tmp_path / "index.lock"
    old.touch()
    os.utime(old, ns=(0, 0))
    lock = RepositoryLock(tmp_path).__enter__()
    made = tmp_path / "refs/heads/ipv.lock"
    made.touch()
    die_with(lock)
    with RepositoryLock(tmp_path):
        assert (old.exists(), made.exists()) == (True, False)


def test_a_note_that_was_cut_is_none(tmp_path):
    (tmp_path / "walle.lock").write_bytes(b'{"do": "pu')
    with RepositoryLock(tmp_path) as lock:
        assert lock.left == {}


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GitError, match="cannot be opened"), RepositoryLock(tmp_path / "none"):
        pass


def test_a_note_of_another_version_is_left_alone(tmp_path):
    text = b'{"format": "2", "do": "push"}\n'
    (tmp_path / "walle.lock").write_bytes(text)
    with pytest.raises(GitError, match="is of another version of walle"):
        RepositoryLock(tmp_path).__enter__()
    assert (tmp_path / "walle.lock").read_bytes() == text
