from contextlib import closing

import pytest

from tests.unit.deploy.monitoring.reporting import Clocked, frame, publish, report
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.transport import read_batch
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import EnvelopeError, ForbiddenError
from walle_stream.ports import ReportFrame
from walle_stream.wire.payload import pack_payload
from walle_stream.wire.report_batch import encode_batch
from walle_stream.wire.reports import REPORTS_VERSION, decode_reports

OWN = report([("d-1", 3, {})])
OTHERS = report([("d-1", 3, {}), ("d-2", 3, {"E": 3})])


@pytest.fixture
def store(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as made:
        publish(made, "v1", "v2")
        yield made


@pytest.fixture
def monitor(store):
    return Monitor(store)


def take(monitor, batch, device):
    return monitor.take(read_batch(batch, device), device)


def test_a_device_reports_for_itself_alone(monitor):
    batch = encode_batch([frame(1, OWN), frame(2, OWN, OTHERS)])
    assert len(read_batch(batch)) == 2
    with pytest.raises(ForbiddenError, match="'d-1' sent a report of 'd-2'"):
        take(monitor, batch, "d-1")
    with pytest.raises(ForbiddenError):
        take(monitor, encode_batch([frame(1, OWN)]), "d-10")
    assert monitor.counts.frames == 0
    with pytest.raises(EnvelopeError):
        read_batch(b"no batch", "d-1")
    many = encode_batch([frame(number, OWN) for number in range(1_001)])
    assert len(read_batch(many)) == 1_001
    with pytest.raises(EnvelopeError, match="1001 frames of device 'd-1'"):
        read_batch(many, "d-1")


def test_no_device_uses_up_the_numbers_of_anothers_data_directory(monitor):
    poisoned = encode_batch([frame(2**61, OWN)])
    assert take(monitor, poisoned, "d-1") == 1
    assert take(monitor, poisoned, "d-1") == 0  # still once
    assert take(monitor, encode_batch([frame(1, report([("d-2", 1, {})]))]), "d-2") == 1
    both = report([("d-2", 1, {}), ("d-3", 1, {})])
    assert monitor.take(read_batch(encode_batch([frame(2, both)]))) == 1


def test_a_frame_counts_once_whoever_brings_it(monitor):
    batch = encode_batch([frame(1, OWN)])
    assert [take(monitor, batch, device) for device in ("d-1", "", "d-1")] == [1, 0, 0]


@pytest.mark.parametrize("liar", ["d-1", "d-2"])
def test_no_device_has_a_frame_of_others_counted_again(monitor, store, liar):
    batch = encode_batch([frame(7, OTHERS)])
    assert take(monitor, batch, "") == 1
    made = report([(liar, 1, {})])
    for number in range(70):
        invented = encode_batch([frame(1, made, incarnation=f"{number:016x}")])
        assert take(monitor, invented, "") == 1
        assert take(monitor, batch, "") == 0
    # 32 of the liar, and that of the other one
    assert store._connection.execute("SELECT COUNT(*) FROM walle_marks").fetchone() == (33,)


def test_a_frame_that_is_none_is_the_monitors_to_refuse(monitor):
    bad = frame(1, OWN)._replace(body=b"\x05nonsense")
    take(monitor, encode_batch([bad, frame(2, OWN)]), "d-1")
    assert (monitor.counts.frames_refused, monitor.counts.frames) == (1, 1)


def test_a_device_that_invents_data_directories_leaves_few_marks(monitor, store):
    for number in range(5):
        frames = [frame(1, OWN, incarnation=f"{number:08x}{n:08x}") for n in range(300)]
        assert take(monitor, encode_batch(frames), "d-1") == 300
    own = encode_batch([frame(7, report([("d-2", 1, {})]), partition=part) for part in range(20)])
    assert [take(monitor, own, "d-2") for _ in range(3)] == [20, 0, 0]
    assert store._connection.execute("SELECT COUNT(*) FROM walle_marks").fetchone() == (32 + 20,)


def test_of_more_data_directories_than_are_known_the_one_in_use_still_counts_once(tmp_path):
    with closing(Clocked(SqliteStore(tmp_path / "releases.db"))) as store:
        publish(store.store, "v1", "v2")
        monitor = Monitor(store)
        for number in range(100):  # a device that is set up anew each day
            store.now += 1_000
            batch = encode_batch([frame(1, OWN, incarnation=f"{number:016x}")])
            assert [take(monitor, batch, "d-1") for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(("device", "most"), [("d-1", 4 * 2**20), ("", 128 * 2**20)])
def test_a_batch_that_inflates_to_very_much_is_refused_before_it_is_decoded(device, most):
    bomb = pack_payload(REPORTS_VERSION, bytes(15 * 2**20), "zstd")
    batch = encode_batch([ReportFrame("ab" * 8, 0, number, bomb) for number in range(10)])
    with pytest.raises(EnvelopeError, match=f"at most {most}"):
        read_batch(batch, device)


def test_a_frame_that_lies_about_its_length_is_not_inflated():
    honest = pack_payload(REPORTS_VERSION, bytes(64 * 2**20), "zstd")
    lie = honest[:2] + (100).to_bytes(4, "little") + honest[6:]
    with pytest.raises(EnvelopeError, match="its size is another one"):
        decode_reports(lie)
