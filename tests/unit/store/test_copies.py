"""When copies are made, and how they travel."""

from itertools import pairwise

import pytest

from walle_stream.clock import monotonic_ms
from walle_stream.errors import EpochTakenError, StoreUnreachableError
from walle_stream.store import copies
from walle_stream.store.copies import SnapshotCopies, Uploads
from walle_stream.store.snapshots import SnapshotPoint


class Snapshots:
    newest = None

    def __init__(self):
        self.points, self.error = [], None

    def put(self, checkpoint, point):
        assert checkpoint.is_dir()
        if self.error:
            raise self.error
        self.points.append(point.commits)


@pytest.fixture
def clock(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(copies, "monotonic_ms", lambda: now[0])
    return now


def test_waits_grow_while_snapshots_fail(tmp_path, clock, caplog):
    snapshots, tried = Snapshots(), []
    snapshots.error = StoreUnreachableError("nobody answers")
    with Uploads() as uploads:
        made = SnapshotCopies(snapshots, uploads, 1_000.0)
        made.prepare(tmp_path / "db")
        began = clock[0]
        for commits in range(1, 200):
            before = made.failures
            made.committed(tmp_path / "db", lambda path: path.mkdir(), SnapshotPoint(1, commits))
            if made._upload is not None:
                made._upload.result()
            if made.failures > before:
                tried.append((clock[0] - began) / 1_000)
            clock[0] += 1_000.0
        assert tried[:7] == [0, 2, 6, 14, 30, 62, 122]
        snapshots.error = None
        clock[0] += 60_000.0
        made.committed(tmp_path / "db", lambda path: path.mkdir(), SnapshotPoint(1, 500))
        made._upload.result()
    assert (snapshots.points, made.failures) == ([500], 0)
    assert [record.message[:20] for record in caplog.records][:1] == ["a snapshot failed, a"]
    assert len(caplog.records) == 2


def test_databases_that_begin_together_take_turns(tmp_path, clock):
    began = {number: [] for number in range(16)}
    with Uploads() as uploads:
        every = [SnapshotCopies(Snapshots(), uploads, 1_000.0) for _ in began]
        for number, made in enumerate(every):
            made.prepare(tmp_path / str(number))
        for commits in range(1, 500):
            for number, made in enumerate(every):

                def copy(path, number=number):
                    path.mkdir()
                    began[number].append(clock[0])

                made.committed(tmp_path / str(number), copy, SnapshotPoint(1, commits))
                if made._upload is not None:
                    made._upload.result()
            clock[0] += 10.0
    for first, second, *others in began.values():
        assert first == 1_000.0  # the first commit makes the first
        assert 500.0 <= second - first <= 1_510.0
        times = [second, *others]
        assert {after - before for before, after in pairwise(times)} == {1_000.0}
    seconds = sorted(second % 1_000.0 for _, second, *_ in began.values())
    assert min(after - before for before, after in pairwise(seconds)) >= 30.0


def test_what_another_owner_refuses_is_given_up(tmp_path, caplog):
    snapshots = Snapshots()
    snapshots.error = EpochTakenError("another owner", 7)
    with Uploads() as uploads:
        made = SnapshotCopies(snapshots, uploads, 0.0)
        far = monotonic_ms() + 60_000
        made.close(tmp_path / "db", lambda path: path.mkdir(), SnapshotPoint(1, 1), far)
    assert (made.failures, caplog.records, list(tmp_path.iterdir())) == (0, [], [])


def test_an_upload_that_fails_tells_who_waits():
    with Uploads() as uploads:
        assert uploads.submit(lambda: 1).result(10) == 1
        with pytest.raises(ZeroDivisionError):
            uploads.submit(lambda: 1 // 0).result(10)
