"""Owners of a partition that stop anywhere, and go on when another one is the owner."""

import os
import tempfile
from pathlib import Path
from threading import Semaphore, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.errors import EpochTakenError
from walle_stream.store import snapshots
from walle_stream.store.objects import FolderObjects
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint


class Stopping:
    """A store whose requests each wait until they are let go."""

    def __init__(self, objects):
        self.place, self._objects = objects.place, objects
        self.go, self.stopped = Semaphore(0), Semaphore(0)

    def __getattr__(self, name):
        def call(*arguments):
            self.stopped.release()
            self.go.acquire()
            found = getattr(self._objects, name)(*arguments)
            return list(found) if name == "get" else found

        return call


class Owner:
    """A machine: it claims, fetches, then puts; its files grow, and keep their names."""

    def __init__(self, number, objects, folder, lost):
        self.objects, self.lost = Stopping(objects), lost
        self.snapshots = PartitionSnapshots(self.objects, "shop", 0)
        self.folder, self.number = folder / str(number), number
        self.looked = PartitionSnapshots(objects, "shop", 0)
        self.epoch, self.commits = 0, 0
        self.content = {}

    def open(self):
        last = self.snapshots.last_epoch
        claimed = self.snapshots.own()
        if last > self.epoch:
            before = len(self.lost)
            point = self.snapshots.fetch(self.folder)
            if self.looked.last_epoch > claimed:
                del self.lost[before:]  # its files may go: somebody else goes on
            self.content = {}
            if point is not None:
                self.content = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.epoch = claimed

    def put(self):
        self.commits += 1
        self.content[f"{len(self.content):06d}.sst"] = b"%d-%d" % (self.epoch, self.commits)
        self.content["CURRENT"] = b"%d" % self.commits
        copy = self.folder.with_name(f"{self.number}-{self.epoch}-{self.commits}")
        copy.mkdir()
        for name, content in self.content.items():
            (copy / name).write_bytes(content)
        try:
            self.snapshots.put(copy, SnapshotPoint(self.epoch, self.commits))
        except EpochTakenError:
            self.epoch = 0

    def steps(self):
        """Do something of this, a request for each step."""
        is_done = []

        def run():
            for each in (self.open,) if not self.epoch else (self.put,):
                each()
            is_done.append(True)
            self.objects.stopped.release()

        thread = Thread(target=run, daemon=True)
        thread.start()
        self.objects.stopped.acquire()
        while not is_done:
            yield
            self.objects.go.release()
            self.objects.stopped.acquire()
        thread.join()


def expect_whole(objects, target):
    made = PartitionSnapshots(objects, "shop", 0)
    points = made._list().points
    assert made.fetch(target) == (points[-1] if points else None), "the newest is not whole"


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 25)), min_size=1, max_size=40))
def test_no_order_of_steps_lets_the_next_owner_find_less(moves):
    lost = []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr(snapshots, "_AT_ONCE", 1)
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(snapshots._log, "warning", lambda *told: lost.append(told))
        folder = Path(name)
        objects = FolderObjects(folder / "shared")
        owners = [Owner(number, objects, folder, lost) for number in range(3)]
        running = {}
        for number, count in moves:
            for _ in range(count):
                steps = running.setdefault(number, owners[number].steps())
                if next(steps, steps) is steps:
                    del running[number]
            before = len(lost)
            expect_whole(objects, folder / "restored")
            assert len(lost) == before
        for steps in running.values():
            list(steps)
        expect_whole(objects, folder / "end")
    assert lost == []
