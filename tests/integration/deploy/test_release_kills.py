"""``kill -9`` at every statement of every change: afterwards it is there, or it is not.

On PostgreSQL at every fourth: each child has to connect.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="the extra `deploy` is not installed")

from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres

SCRIPT = Path(__file__).with_name("release_kills.py")

pytestmark = pytest.mark.integration


def kills(address, every):
    done = subprocess.run(
        [sys.executable, SCRIPT, address, str(every)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_kill_leaves_all_of_a_change_or_nothing_in_sqlite(tmp_path):
    assert kills(str(tmp_path / "releases.db"), 1) > 60


@pytest.mark.skipif(find_postgres() is None, reason="no PostgreSQL on this machine")
def test_a_kill_leaves_all_of_a_change_or_nothing_in_postgresql():
    with TemporaryPostgres(find_postgres()) as server:
        assert kills(server.url, 4) > 20
