from contextlib import closing

import pytest

from tests.unit.deploy.monitoring.reporting import frame, publish, report
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.transport import read_batch
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import EnvelopeError, ForbiddenError
from walle_stream.wire.report_batch import encode_batch

OWN = report([("d-1", 3, {})])
OTHERS = report([("d-1", 3, {}), ("d-2", 3, {"E": 3})])


@pytest.fixture
def monitor(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as store:
        publish(store, "v1", "v2")
        yield Monitor(store)


def test_a_device_reports_for_itself_alone():
    batch = encode_batch([frame(1, OWN), frame(2, OWN, OTHERS)])
    assert len(read_batch(batch)) == 2
    with pytest.raises(ForbiddenError, match="'d-1' sent a report of 'd-2'"):
        read_batch(batch, "d-1")
    with pytest.raises(ForbiddenError):
        read_batch(encode_batch([frame(1, OWN)]), "d-10")
    with pytest.raises(EnvelopeError):
        read_batch(b"no batch", "d-1")
    many = encode_batch([frame(number, OWN) for number in range(1_001)])
    assert len(read_batch(many)) == 1_001
    with pytest.raises(EnvelopeError, match="1001 frames of device 'd-1'"):
        read_batch(many, "d-1")


def test_no_device_uses_up_the_numbers_of_anothers_data_directory(monitor):
    poisoned = encode_batch([frame(2**61, OWN)])
    assert monitor.take(read_batch(poisoned, "d-1")) == 1
    assert monitor.take(read_batch(poisoned, "d-1")) == 0  # still once
    assert monitor.take(read_batch(encode_batch([frame(1, report([("d-2", 1, {})]))]), "d-2")) == 1
    assert monitor.take(read_batch(encode_batch([frame(1, OTHERS)]))) == 1


def test_a_frame_that_is_none_is_the_monitors_to_refuse(monitor):
    bad = frame(1, OWN)._replace(body=b"\x05nonsense")
    monitor.take(read_batch(encode_batch([bad, frame(2, OWN)]), "d-1"))
    assert (monitor.counts.frames_refused, monitor.counts.frames) == (1, 1)
