"""The file that tells of a run, and what is made of it."""

import os

import pytest

from walle_stream.app.figures.status import (
    HostStatus,
    PartitionFigures,
    RunStatus,
    read_status,
    with_lags,
    write_status,
)
from walle_stream.errors import StoreMissingError
from walle_stream.store import keys
from walle_stream.store.datadir import DataDir
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.rows import Counters, PartitionHead, encode_row


@pytest.fixture
def opened(tmp_path):
    with DataDir.open(tmp_path / "d", partition_count=2, pipeline="p", source={}) as opened:
        yield opened


def figures(number, watermark_ms=-1):
    return PartitionFigures(
        number=number, host=0, events=3, features=1, commits=2, watermark_ms=watermark_ms
    )


def told(**changes):
    host = HostStatus(index=0, pid=7, step="running", restarts=2, unread=0.5)
    fields = {"pipeline": "p", "runtime": "ray", "phase": "running", "pid": os.getpid()}
    return RunStatus(**{**fields, "hosts": [host], "partitions": [figures(0)], **changes})


def test_a_run_that_goes_on_is_shown_as_it_tells(opened):
    write_status(opened.status_path, told())
    found = read_status(opened.path)
    assert (found.phase, found.hosts[0].restarts, found.hosts[0].pid) == ("running", 2, 7)
    assert [each.events for each in found.partitions] == [3]
    assert found.updated_ms > 0
    assert opened.status_path.stat().st_mode & 0o777 == 0o600


def test_a_run_that_nobody_ended_was_killed(opened):
    write_status(opened.status_path, told())
    opened.close()
    found = read_status(opened.path)
    assert (found.phase, found.pid, found.hosts[0].pid) == ("killed", 0, 0)
    assert found.partitions == []  # nothing is committed in this directory


def test_a_partition_that_went_elsewhere_is_not_shown(opened):
    for number in (0, 1):
        with PartitionStore.open(opened.partition_path(number)) as store:
            store.write_rows({keys.HEAD_KEY: encode_row(PartitionHead(Counters(events=number)))})
    for owners, found in ({1: 0}, {1: 0}), ({}, {}), (None, {0: 0, 1: 0}):
        write_status(opened.status_path, told(partitions=[], owners=owners))
        shown = read_status(opened.path).partitions
        assert {each.number: each.host for each in shown} == found
    write_status(opened.status_path, told(partitions=[], owners={}, phase="ended"))
    shown = read_status(opened.path).partitions  # nobody has them, and they are here
    assert {each.number: each.host for each in shown} == {0: -1, 1: -1}


def test_a_run_that_ended_stays_ended(opened):
    write_status(opened.status_path, told(phase="ended", stopped_by="end"))
    opened.close()
    assert read_status(opened.path).phase == "ended"


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"v": []}'])
def test_a_file_that_is_no_status_is_none(opened, content):
    if content is not None:
        opened.status_path.write_bytes(content)
    assert read_status(opened.path).phase == "starting"
    opened.close()
    assert read_status(opened.path).phase == "killed"


def test_lags_are_behind_the_furthest_partition():
    found = with_lags([figures(0, 5_000), figures(1, 8_000), figures(2)])
    assert [each.behind_ms for each in found] == [3_000, 0, 0]
    assert [each.lag_ms for each in found] == [3_000, 0, 0]


def test_no_data_directory_is_an_error(tmp_path):
    with pytest.raises(StoreMissingError):
        read_status(tmp_path / "none")
