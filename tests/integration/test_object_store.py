"""Snapshots in a real S3 server: what a run does with them, and what people are told."""

import os
import shutil
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.s3 import BUCKET
from walle_stream.app.resources import shipped_configs
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SpecFileError, StoreError, StoreUnreachableError
from walle_stream.store import copies, snapshots
from walle_stream.store.copies import SnapshotCopies, Uploads
from walle_stream.store.objects import open_objects
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint
from walle_stream.testing.kit import run_pipeline

pytestmark = pytest.mark.full
pytest.importorskip("obstore", reason="the extra `cluster` is not installed")

SHOP = shipped_configs() / "shop.yaml"
SOURCE = ["spec.source.devices=60", "spec.source.sessions=3", "spec.runtime.partitions=4"]
MIB = 2**20


def place(s3, prefix, bucket=BUCKET):
    options = f"{{endpoint: '{s3.endpoint}'}}"
    return f"spec.state.snapshots={{url: 's3://{bucket}/{prefix}', options: {options}}}"


def test_state_follows_its_partition_through_a_bucket(s3, tmp_path):
    expected = run_pipeline(SHOP, tmp_path / "whole", SOURCE)
    keys = [*SOURCE, place(s3, "moves")]
    run_pipeline(SHOP, tmp_path / "a", keys, 2_000)
    shutil.rmtree(tmp_path / "a")
    run_pipeline(SHOP, tmp_path / "b", keys, 1_000)
    # one that comes back has an older state, and takes what the other left
    run_pipeline(SHOP, tmp_path / "c", keys)
    rows = run_pipeline(SHOP, tmp_path / "b", keys)

    def shown(rows):
        return sorted(
            (row["device_id"], row["sequence_number"], str(row["feature"])) for row in rows
        )

    assert shown(rows) == shown(expected)


def test_an_unreachable_store_is_said_in_one_line(s3, walle, tmp_path):
    """By validate at once; a start asks for a while."""
    for url, environ, code, said in [
        (place(s3, "x"), {}, 0, ""),
        (place(s3, "x", "no-such-bucket"), {}, 6, "there is no such bucket"),
        (place(s3, "x"), {"AWS_SECRET_ACCESS_KEY": "hush-hush"}, 6, "refuses these credentials"),
        (place(s3, "x"), {"AWS_ACCESS_KEY_ID": "nobody"}, 6, "refuses these credentials"),
        (
            "spec.state.snapshots={url: 's3://bucket/x', options: {endpoint: 'http://127.0.0.1:1'}}",
            {},
            12,
            "s3://bucket/x does not answer",
        ),
        ("spec.state.snapshots={url: 's3://a:hush-hush@b/x'}", {}, 3, "come from the environment"),
        ("spec.state.snapshots={url: 's3://b/x', options: {secret: hush-hush}}", {}, 3, "secret"),
        ("spec.state.snapshots={url: 'ftp://b/x'}", {}, 3, "give a folder, file:///FOLDER"),
        ("spec.state.snapshots={}", {}, 3, "give url or path"),
    ]:
        done = walle("validate", SHOP, "--set", url, environ=environ, check=False)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert len(done.stderr.splitlines()) == (1 if code else 0), done.stderr
        assert "hush-hush" not in done.stderr


def test_no_credentials_and_a_missing_extra_are_said(s3, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(StoreError, match="Missing AccessKeyId: check the environment"):
        open_objects(f"s3://{BUCKET}/x", {"endpoint": s3.endpoint})
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    # what asks for those of the machine itself gets an answer from nowhere
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1/169.254.169.254")
    objects = open_objects(f"s3://{BUCKET}/x", {"endpoint": s3.endpoint})
    with pytest.raises(StoreError, match="there are no credentials"):
        objects.listed("x")
    for name in [name for name in sys.modules if "obstore" in name or "buckets" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(SpecFileError, match=r"obstore is not installed: .*cluster") as missing:
        open_objects(f"s3://{BUCKET}/x")
    assert missing.value.file == ""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for another clock")
def test_a_clock_that_is_wrong_is_said(s3, tmp_path):
    source = tmp_path / "clock.c"
    source.write_text("""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <time.h>
        int clock_gettime(clockid_t clock, struct timespec *time) {
            int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
            int status = real(clock, time);
            if (clock == CLOCK_REALTIME) time->tv_sec -= 3 * 3600;
            return status;
        }
    """)
    library = tmp_path / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    command = [sys.executable, "-m", "walle_stream.cli", "validate", SHOP, "--set", place(s3, "x")]
    done = subprocess.run(
        command,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (6, 1), done.stderr
    assert "this machine's clock is wrong: set it" in done.stderr


def a_checkpoint(path):
    path.mkdir()
    (path / "CURRENT").write_bytes(b"1")
    for number in range(6):
        (path / f"{number:06d}.sst").write_bytes(os.urandom(8 * MIB))


@pytest.fixture
def impatient(monkeypatch):
    from walle_stream.store import buckets  # noqa: PLC0415 - an extra

    # a busy machine takes 48 MB a while
    monkeypatch.setitem(buckets._CLIENT, "read_timeout", timedelta(seconds=3))
    monkeypatch.setitem(buckets._RETRY, "retry_timeout", timedelta(seconds=2))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["stopped", "paused"])
def test_a_store_that_is_away_delays_snapshots_and_nothing_else(
    s3, tmp_path, monkeypatch, caplog, how
):
    monkeypatch.setattr(copies, "_LONGEST_WAIT_MS", 200.0)
    objects = open_objects(f"s3://{BUCKET}/away-{how}", {"endpoint": s3.endpoint})
    made = PartitionSnapshots(objects, "shop", 0)
    with Uploads() as uploads:
        kept = SnapshotCopies(made, uploads, 0.0)
        kept.prepare(tmp_path / "db")
        epoch = made.own()
        (s3.stop if how == "stopped" else s3.pause)()
        try:
            longest = 0.0
            commits = 0
            while kept.failures < 2:
                began = time.monotonic()
                commits += 1
                kept.committed(tmp_path / "db", a_checkpoint, SnapshotPoint(epoch, commits))
                longest = max(longest, time.monotonic() - began)
                threading.Event().wait(0.01)
        finally:
            (s3.start if how == "stopped" else s3.go_on)()
        while kept.failures:
            commits += 1
            kept.committed(tmp_path / "db", a_checkpoint, SnapshotPoint(epoch, commits))
            threading.Event().wait(0.01)
        kept.close(
            tmp_path / "db", a_checkpoint, SnapshotPoint(epoch, commits), monotonic_ms() + 60_000
        )
    assert longest < 2.0  # a commit never waits
    told = [record.message for record in caplog.records if record.name == copies.__name__]
    assert len(told) == 2
    assert "a snapshot failed, and is retried" in told[0]
    assert "snapshots work again" in told[1]
    assert not list(tmp_path.glob("db.checkpoint-*"))
    assert PartitionSnapshots(objects, "shop", 0).fetch(tmp_path / "back") is not None


@pytest.mark.parametrize("how", ["stopped", "paused"])
def test_an_end_does_not_wait_for_a_store_that_is_away(s3, tmp_path, how):
    objects = open_objects(f"s3://{BUCKET}/end-{how}", {"endpoint": s3.endpoint})
    began = time.monotonic()
    with Uploads() as uploads:
        kept = []
        for number in range(8):
            made = PartitionSnapshots(objects, "shop", number)
            kept.append(SnapshotCopies(made, uploads, 0.0))
            made.own()
        (s3.stop if how == "stopped" else s3.pause)()
        deadline_ms = monotonic_ms() + 1_000
        for number, each in enumerate(kept):
            path = tmp_path / f"{number:02d}"
            each.close(path, a_small_checkpoint, SnapshotPoint(1, 1), deadline_ms)
    took = time.monotonic() - began
    (s3.start if how == "stopped" else s3.go_on)()
    assert took < 10
    # but for the one on its way, which the next owner removes
    assert len(list(tmp_path.iterdir())) <= 1


def a_small_checkpoint(path: Path) -> None:
    path.mkdir()
    (path / "CURRENT").write_bytes(b"1")


def test_an_opening_goes_on_when_the_store_is_back(s3, tmp_path, caplog):
    objects = open_objects(f"s3://{BUCKET}/opening", {"endpoint": s3.endpoint})
    made = PartitionSnapshots(objects, "shop", 0)
    made.own()
    a_checkpoint(tmp_path / "db")
    made.put(tmp_path / "db", SnapshotPoint(1, 1))
    s3.stop()
    threading.Timer(3.0, s3.start).start()
    later = PartitionSnapshots(objects, "shop", 0)
    assert later.own() == 2
    assert later.fetch(tmp_path / "back") == SnapshotPoint(1, 1)


def test_an_opening_gives_up_in_the_end(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "_PATIENCE_MS", 1_000.0)
    objects = open_objects(f"s3://{BUCKET}/never", {"endpoint": "http://127.0.0.1:1"})
    with pytest.raises(StoreUnreachableError, match=r"s3://.*/never does not answer"):
        PartitionSnapshots(objects, "shop", 0).own()
