"""Changes of releases, each killed at each of its statements; started by the kill tests.

The arguments are the store and the interval of statements between kills. Every attempt is a child
process of its own, which opens the store and dies by SIGKILL before its N-th statement. The parent
then checks that all of the change is present, or nothing.
"""

import os
import signal
import sys

from tests.unit.deploy.hasty import hasty
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.events import Tick
from walle_deploy.release.model import Release
from walle_deploy.release.verification import verify
from walle_deploy.store.opening import open_store
from walle_deploy.store.sqlite import SqliteStore

TASK = "shop/ipv"


class Deadly:
    """Counts statements, and dies at the one that is due."""

    def __init__(self, left):
        self.left = left

    def __call__(self, execute):
        def run(*arguments):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return execute(*arguments)

        return run


def arm(store, left):
    """Let a store die at a statement, commits of SQLite included."""
    deadly = Deadly(left)
    if isinstance(store, SqliteStore):
        connection = store._connection

        class Armed:
            execute = staticmethod(deadly(connection.execute))
            in_transaction = property(lambda _self: connection.in_transaction)

        store._connection = Armed()
    else:
        store._execute = deadly(store._execute)


def create(commands):
    definition = {
        "apiVersion": "walle/v1",
        "kind": "Release",
        "metadata": {"name": "r"},
        "spec": hasty({"task": TASK, "version": "v2", "gray": [{"percent": 5}]}),
    }
    commands.create(Release.model_validate(definition), supersede=True)


def go(commands):
    commands.apply("r", lambda look, _: Tick(look.now_ms(), "go", 5))


CHANGES = (
    lambda commands: commands.publish(TASK, "v2", VersionFiles(())),
    lambda commands: commands.adopt(TASK, "v2"),
    create,
    go,
    lambda commands: commands.pause("r"),
    lambda commands: commands.resume("r"),
    go,
    go,
    lambda commands: commands.roll_back("r"),
)


def seen(address):
    """Return what the store holds, after checking that it belongs together."""
    store = open_store(address)
    with store.reading() as reading:
        verify(reading)
        found = reading.audit_head().number, list(reading.releases()), dict(reading.stable())
        found += (reading.generation(), list(reading.versions(TASK)))
    store.close()
    return found


def attempt(address, change, left):
    """Make a change in a child that dies at a statement; return whether it died."""
    child = os.fork()
    if child == 0:
        store = open_store(address)
        arm(store, left)
        change(ReleaseCommands(store, "killed"))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(address, every):
    kills = 0
    for number, change in enumerate(CHANGES):
        before, left = seen(address), 1 + number % every
        while attempt(address, change, left):
            kills += 1
            left += every
            assert seen(address) == before, f"change {number} at statement {left}"
        assert seen(address)[0] > before[0]
    print(kills)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
