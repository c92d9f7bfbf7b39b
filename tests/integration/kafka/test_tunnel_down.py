"""A tunnel that stays down while events go through: bounded, nothing lost, nothing doubled."""

import hashlib
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.integration.kafka.cloud_end import merged_features
from tests.integration.kafka.test_device import merged, written
from tests.integration.kafka.test_tunnel_faults import Forwarder
from tests.integration.kafka.topics_of_tests import fresh_model
from walle_stream.app.queries.query import run_state
from walle_stream.clock import monotonic_ms
from walle_stream.errors import StoreError
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

PARTITIONS = 5
MIB = 2**20
RUNS_MAX = 20
EVENTS_PER_DEVICE = 160
"""About as many as the simulated shop makes of one visitor."""


def command(name, file, data_dir, devices):
    return [sys.executable, "-m", "walle_stream.cli", name, str(file), "--data-dir", str(data_dir),
            "--set", f"spec.source.devices={devices}", "--json"]  # fmt: skip


def run(*arguments, timeout_s):
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def running(*arguments):
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def outbox_bytes(data_dir):
    total = 0
    for path in sorted((data_dir / "partitions").glob("*")):
        try:
            store = PartitionStore.open(path, read_only=True)
        except StoreError:
            continue  # it is just being made, or written
        with closing(store):
            total += sum(len(value) for _, value in store.scan(keys.OUTBOX_PREFIX))
    return total


def events(data_dir):
    try:
        return run_state(data_dir).counters.events
    except StoreError:
        return 0


def peak_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def disk_bytes(folder):
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # a log that was just dropped
    return total


def send_rest(file, data_dir, devices):
    """Run until the outbox is empty: a run whose source has ended waits some seconds at most."""
    for _ in range(RUNS_MAX):
        if not outbox_bytes(data_dir):
            return
        run("run", file, data_dir, devices, timeout_s=120)
    assert outbox_bytes(data_dir) == 0


def digest(records):
    made, count = hashlib.sha256(), 0
    for record in records:
        made.update(repr(record).encode())
        count += 1
    return count, made.hexdigest()


def truth(file, folder, devices, timeout_s):
    run("run", file, folder, devices, timeout_s=timeout_s)
    return digest(merged_features(folder))


def expect_truth(model, folder, wanted):
    stats, records = merged(model, folder, lambda stats: stats.features >= wanted[0])
    assert (stats.gaps, stats.frames_refused) == (0, 0)
    assert digest(records) == wanted


def test_a_full_outbox_stops_the_source_and_goes_up_in_the_end(address, tmp_path, capsys):
    devices, bound = 20_000 // EVENTS_PER_DEVICE, 96 * 1024
    forwarder, tick = Forwarder(address), Event()
    with ExitStack() as stack:
        model = stack.enter_context(fresh_model(address, PARTITIONS))
        wanted = truth("shop", tmp_path / "truth", devices, 120)
        file = written(
            tmp_path,
            model,
            brokers=[f"127.0.0.1:{forwarder.port}"],
            outbox={"maxBytes": bound},
        )
        data_dir = tmp_path / "down"
        process = stack.enter_context(running("run", file, data_dir, devices))
        deadline_ms = monotonic_ms() + 120_000
        seen, still = 0, 0
        while still < 20:  # looks at a source that stands
            now = events(data_dir)
            is_full = outbox_bytes(data_dir) > bound // 2
            seen, still = now, still + 1 if is_full and now == seen else 0
            assert process.poll() is None, process.communicate()
            assert monotonic_ms() < deadline_ms, "the outbox does not fill"
            tick.wait(0.05)
        assert 0 < seen < devices * EVENTS_PER_DEVICE // 2
        held, peak = outbox_bytes(data_dir), peak_bytes(process.pid)
        with capsys.disabled():
            print(
                f"\ndown, full: {seen} events, outbox {held} of {bound} bytes, "
                f"peak {peak / MIB:.0f} MiB, disk {disk_bytes(data_dir) / MIB:.1f} MiB"
            )
        # what one commit may add of each partition: of a bound this small it is much
        assert held < bound + PARTITIONS * 64 * 1024
        forwarder.open(stack)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        send_rest(file, data_dir, devices)
        expect_truth(model, tmp_path / "table", wanted)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_oldest_features_give_way_and_the_newest_arrive(address, walle, tmp_path, is_killed):
    devices, tick = 20_000 // EVENTS_PER_DEVICE, Event()
    nobody, policy = Forwarder(), {"outbox": {"maxBytes": 96 * 1024}, "onFull": "dropOldest"}
    with fresh_model(address, PARTITIONS) as model:
        run("run", "shop", tmp_path / "truth", devices, timeout_s=120)
        wanted = merged_features(tmp_path / "truth")
        down = written(tmp_path, model, brokers=[f"127.0.0.1:{nobody.port}"], **policy)
        data_dir = tmp_path / "down"
        if is_killed:
            deadline_ms = monotonic_ms() + 120_000
            with running("run", down, data_dir, devices) as process:
                while events(data_dir) < devices * EVENTS_PER_DEVICE // 2:
                    assert process.poll() is None, process.communicate()
                    assert monotonic_ms() < deadline_ms, "the source stands"
                    tick.wait(0.02)
                process.kill()
        run("run", down, data_dir, devices, timeout_s=120)
        send_rest(written(tmp_path, model, **policy), data_dir, devices)
        counters = run_state(data_dir).counters
        assert counters.features == len(wanted)
        assert counters.dropped_features > 0
        told = walle("status", data_dir).stdout
        assert f"{counters.dropped_features:,} features were dropped unsent" in told
        last = {record.device_id: record.sequence_number for record in wanted}
        left = len(wanted) - counters.dropped_features
        stats, records = merged(
            model,
            tmp_path / "table",
            lambda stats: stats.features + stats.duplicates_dropped >= left,
        )
        assert stats.gaps > 0
        numbers = {(each.device_id, each.sequence_number): each for each in wanted}
        assert all(numbers[each.device_id, each.sequence_number] == each for each in records)
        assert len({(each.device_id, each.sequence_number) for each in records}) == len(records)
        if not is_killed:
            assert (len(records), stats.duplicates_dropped) == (left, 0)
        # the last ones of many devices: their frames were the newest
        assert any(last[each.device_id] == each.sequence_number for each in records)


@pytest.mark.slow
def test_a_million_events_go_through_while_the_tunnel_is_down(address, tmp_path, capsys):
    devices = 1_000_000 // EVENTS_PER_DEVICE
    nobody = Forwarder()
    with fresh_model(address, PARTITIONS) as model:
        wanted = truth("shop", tmp_path / "truth", devices, 600)
        down = written(tmp_path, model, brokers=[f"127.0.0.1:{nobody.port}"])
        data_dir = tmp_path / "down"
        with running("run", down, data_dir, devices) as process:
            peak, tick = 0, Event()
            while process.poll() is None:
                peak = max(peak, _peak_while_alive(process.pid))
                tick.wait(0.1)
            _, errors = process.communicate()
            assert process.returncode == 0, errors
        held, disk, seen = outbox_bytes(data_dir), disk_bytes(data_dir), events(data_dir)
        with capsys.disabled():
            print(
                f"\ndown: {seen} events, {wanted[0]} features, outbox {held / MIB:.1f} MiB, "
                f"peak {peak / MIB:.0f} MiB, disk {disk / MIB:.0f} MiB"
            )
        assert seen > 900_000
        assert 0 < held < 65 * MIB
        assert peak < 1536 * MIB
        assert disk < 1024 * MIB
        send_rest(written(tmp_path, model), data_dir, devices)
        expect_truth(model, tmp_path / "table", wanted)


def _peak_while_alive(pid):
    try:
        return peak_bytes(pid)
    except (OSError, IndexError):
        return 0  # it has just ended
