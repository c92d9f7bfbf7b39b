"""Waiting for another process's databases."""

import logging
import subprocess
import sys

import pytest

from walle_stream.errors import StoreLockedError
from walle_stream.store.locks import wait_for_locks
from walle_stream.store.partition import PartitionStore

OWNER = """
import sys
from pathlib import Path
from walle_stream.store.partition import PartitionStore
store = PartitionStore.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path):
    command = [sys.executable, "-c", OWNER, tmp_path / "d"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"open\n"
    yield process
    process.kill()
    process.communicate()


def test_databases_that_nobody_has_are_free(tmp_path):
    PartitionStore.open(tmp_path / "d").close()
    wait_for_locks([tmp_path / "d", tmp_path / "none"], 0.0)


def test_an_owner_that_stays_is_named_as_the_problem(owner, tmp_path):
    with pytest.raises(StoreLockedError, match=r"d is in use by another process after 0 s"):
        wait_for_locks([tmp_path / "d"], 0.0)


def test_an_owner_that_dies_is_waited_for(owner, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    owner.kill()
    wait_for_locks([tmp_path / "d"], 30.0)
    PartitionStore.open(tmp_path / "d").close()
