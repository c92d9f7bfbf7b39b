import os
import subprocess
import sys

import pytest

from walle_stream.testing.chaos.processes import (
    ProcessId,
    await_end,
    children_of,
    command_line,
    kill,
    look_at,
    with_environment,
)

WAITER = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


@pytest.fixture
def child():
    environ = {**os.environ, "MARK_OF_A_TEST": str(os.getpid())}
    started = subprocess.Popen(
        WAITER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    assert started.stdout.readline() == "up\n"
    yield started
    started.kill()
    started.communicate()


def test_a_child_is_found_by_its_parent_and_by_its_environment(child):
    identity = look_at(child.pid)
    assert identity in children_of(os.getpid())
    assert with_environment("MARK_OF_A_TEST", str(os.getpid())) == [identity]
    assert with_environment("MARK_OF_A_TEST", "other") == []
    assert command_line(identity) == " ".join(WAITER)


def test_what_was_killed_is_gone_before_it_is_reaped(child):
    identity = look_at(child.pid)
    assert kill(identity)
    assert await_end(identity, 30.0)
    assert look_at(child.pid) is None
    assert command_line(identity) == ""
    assert identity not in children_of(os.getpid())
    assert not kill(identity)
    assert child.wait() == -9


def test_another_process_with_the_same_number_is_left_alone(child):
    before = ProcessId(child.pid, look_at(child.pid).started - 1)
    assert not kill(before)
    assert await_end(before, 0.0)
    assert child.poll() is None
    assert not await_end(look_at(child.pid), 0.0)
