"""The cloud side when topics, brokers, disks and other workers go: all there once, or one line."""

import http.client
import json
import random
import shutil
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_truth import Truth, hash_of, merged
from cloud_worker import DEADLINE_S, Worker, envelope, send, wait_until
from kafka.admin import ConfigResource
from kafka.errors import NonEmptyGroupError

from kafka import TopicPartition
from walle_stream.errors import StoreFullError
from walle_stream.wire.record import encode_record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

DEVICES = [f"d{number}" for number in range(16)]


@pytest.fixture
def topic(cluster):
    return cluster.topic("features")


@pytest.fixture
def truth(cluster, topic):
    return Truth(cluster, topic)


def end_of(worker):
    """Wait for its end; return exit code and last line."""
    code = worker.process.wait(DEADLINE_S)
    return code, worker.output().splitlines()[-1]


def send_to_all(truth, count):
    for device in DEVICES:
        truth.send(device, count)
    truth.cluster.producer.flush()


@contextmanager
def two_workers(folder, cluster, topic, *arguments):
    with (
        Worker(folder, cluster, topic, *arguments, name="one") as one,
        Worker(folder, cluster, topic, *arguments, name="two") as two,
    ):
        for each in (one, two):
            each.wait_ready()
        for each in (one, two):
            wait_until(lambda each=each: held(each), "partitions of both", each)
        yield one, two


@pytest.fixture
def of_driver(group_driver):
    return "--set", f"spec.tunnel.driver={group_driver}"


def held(worker):
    shown = worker.get("/healthz")[1]
    return set(shown["partitions"]) if shown else set()


def delete_before_the_end(cluster, topic):
    """Do as retention does with all that is there."""
    with cluster.admin() as admin:
        places = [TopicPartition(topic, number) for number in range(4)]
        admin.delete_records(dict.fromkeys(places, -1))


def test_a_worker_that_dies_leaves_its_partitions_to_another(
    cluster, topic, truth, tmp_path, of_driver
):
    with two_workers(tmp_path, cluster, topic, *of_driver) as (one, two):
        send_to_all(truth, 100)
        wait_until(lambda: merged(two) > 0 or merged(one) > 0, "some features", one)
        two.kill()
        send_to_all(truth, 20)
        truth.wait(one)
        assert held(one) == {"0", "1", "2", "3"}


@pytest.mark.parametrize("fault", ["kill", "pause", "long pause"])
def test_a_broker_that_goes_while_partitions_move(
    broker, cluster, topic, truth, tmp_path, fault, of_driver
):
    with two_workers(tmp_path, cluster, topic, *of_driver) as (one, two):
        send_to_all(truth, 100)
        wait_until(lambda: merged(one) > 0, "some features", one)
        broker.kill() if fault == "kill" else broker.pause()
        two.kill()
        for device in DEVICES:
            truth.send(device, 20)  # waits in the producer
        wait_until(lambda: one.get("/healthz")[1]["status"] == "cut off", "it to say so", one)
        assert one.get(f"/features/{DEVICES[0]}")[0] == 503
        if fault == "long pause":
            wait_until(lambda: "joins its group again" in one.output(), "another client", one)
        broker.heal()
        truth.wait(one)
        assert one.stop() == 0


def test_a_worker_that_comes_back_after_its_partitions_moved(
    cluster, topic, truth, tmp_path, of_driver
):
    with two_workers(tmp_path, cluster, topic, *of_driver) as (one, two):
        send_to_all(truth, 200)
        wait_until(lambda: merged(two) > 0, "some features", two)
        two.process.send_signal(signal.SIGSTOP)  # with records in hand, for longer than its session
        send_to_all(truth, 20)
        truth.wait(one)
        two.process.send_signal(signal.SIGCONT)
        send_to_all(truth, 20)
        truth.wait(two)  # it asks the other for what it lost
        wait_until(lambda: held(two), "partitions again", two)
        truth.wait(one)
        one.kill()
        # its own tables are behind the other's work: it reads on from its own places
        send_to_all(truth, 20)
        truth.wait(two)
        assert two.stop() == 0


def test_a_worker_that_was_stopped_answers_nothing_from_before(
    cluster, topic, truth, tmp_path, of_driver
):
    with ExitStack() as stack:
        one, two = stack.enter_context(two_workers(tmp_path, cluster, topic, *of_driver))
        send_to_all(truth, 20)
        truth.wait(two)
        two.process.send_signal(signal.SIGSTOP)
        send_to_all(truth, 5)
        truth.wait(one)
        # they wait in the socket
        asked = []
        for device in DEVICES:
            asked.append(http.client.HTTPConnection("127.0.0.1", two.port, timeout=60))
            stack.callback(asked[-1].close)
            asked[-1].request("GET", f"/features/{device}")
        two.process.send_signal(signal.SIGCONT)
        answers = [each.getresponse() for each in asked]
        rows = [json.load(each) for each in answers if each.status != 503]
        assert {row["incarnations"][0]["features"] for row in rows} <= {25}


def test_look_ups_never_answer_from_a_table_that_lacks_something(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        send_to_all(truth, 300)
        worker.wait_ready()
        truth.wait(worker)
        assert worker.stop() == 0
    shutil.rmtree(tmp_path / "w")
    found = set()
    with Worker(tmp_path, cluster, topic) as worker:
        while (200, 300) not in found:
            assert worker.process.poll() is None, worker.output()
            status, row = worker.get(f"/features/{DEVICES[0]}")
            found.add((status, row["incarnations"][0]["features"] if status == 200 else None))
    # 0: nobody listens yet
    assert found <= {(0, None), (503, None), (200, 300)}


def test_killed_while_it_makes_its_table_again_and_again(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        send_to_all(truth, 200)
        worker.wait_ready()
        truth.wait(worker)
    chance = random.Random(7)
    for _ in range(3):
        with Worker(tmp_path, cluster, topic, name="other") as worker:
            # it listens before it has its partitions
            wait_until(lambda worker=worker: worker.get("/healthz")[0], "its pages", worker)
            some = chance.randint(0, 2_000)
            wait_until(lambda worker=worker, some=some: merged(worker) >= some, "some", worker)
            truth.send(chance.choice(DEVICES), 5)
    with Worker(tmp_path, cluster, topic, name="other") as worker:
        worker.wait_ready()
        truth.wait(worker)


def test_a_partition_that_moves_is_its_snapshot_and_what_follows(cluster, topic, truth, tmp_path):
    shots = ("--snapshots", tmp_path / "shots", "--snapshot-every", "1", "--keep", "3")
    with Worker(tmp_path, cluster, topic, *shots, name="one") as one:
        one.wait_ready()
        send_to_all(truth, 50)
        truth.wait(one)
        assert one.stop() == 0  # behind its last snapshots
    delete_before_the_end(cluster, topic)
    with Worker(tmp_path, cluster, topic, *shots, name="two") as two:
        two.wait_ready()
        send_to_all(truth, 20)
        truth.wait(two)
        # while it is away the first one brings more
        assert two.stop() == 0
    with Worker(tmp_path, cluster, topic, *shots, name="one") as one:
        one.wait_ready()
        truth.wait(one)
        send_to_all(truth, 20)
        truth.wait(one)
        one.kill()
    with Worker(tmp_path, cluster, topic, *shots, name="two") as two:
        two.wait_ready()
        truth.wait(two)


def test_what_retention_deleted_before_it_was_merged_is_one_line(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic, name="one") as one:
        one.wait_ready()
        send_to_all(truth, 30)
        truth.wait(one)
        assert one.stop() == 0
    send_to_all(truth, 5)
    delete_before_the_end(cluster, topic)
    with Worker(tmp_path, cluster, topic, name="one") as one:
        code, line = end_of(one)
        assert (code, "records are lost: reading stopped at offset" in line) == (9, True)
    with Worker(tmp_path, cluster, topic, name="empty") as empty:
        code, line = end_of(empty)
        assert (code, "by a worker whose table is not here" in line) == (9, True)
        assert len(empty.output().splitlines()) == 1
    truth.send("d1", 1)
    with Worker(tmp_path, cluster, topic, "--on-missing", "earliest", name="one") as one:
        one.wait_ready()
        row = wait_until(lambda: (r := one.row("d1")) and r["gaps"] == 1 and r, "the rest", one)
        assert (row["incarnations"][0]["last_number"], row["incarnations"][0]["features"]) == (
            36,
            31,
        )


@pytest.mark.parametrize(
    ("setting", "words"),
    [("cleanup.policy=compact", "is compacted"), ("retention.ms=5000", "keeps records for 5 s")],
)
def test_a_topic_that_keeps_too_little_is_one_line(cluster, topic, tmp_path, setting, words):
    name, _, value = setting.partition("=")
    with cluster.admin() as admin:
        admin.alter_configs([ConfigResource("TOPIC", topic, {name: value})])
    with Worker(tmp_path, cluster, topic, "--snapshots", tmp_path / "shots") as worker:
        code, line = end_of(worker)
        assert (code, words in line) == (13, True)


def test_features_of_many_bytes_end_no_worker(cluster, topic, tmp_path):
    chance = random.Random(1)
    with Worker(tmp_path, cluster, topic) as worker:
        for number in range(1, 13):
            value = json.dumps(chance.randbytes(150_000).hex()).encode()
            send(cluster, topic, envelope("d", number, 0), value)
        send(cluster, topic, envelope("e", 1, 0), b'{"n":1}')
        cluster.producer.flush()
        worker.wait_ready()
        wait_until(lambda: worker.row("e"), "the other device", worker)
        row = worker.row("d")
        assert row["incarnations"][0]["features"] == 12
        assert [each["sequence_number"] for each in row["tasks"]["shop-ipv"]] == [*range(12, 0, -1)]
        assert worker.stop() == 0


def test_records_that_nobody_could_merge_end_no_worker(cluster, topic, tmp_path):
    key, value, headers = encode_record(envelope("d", 1, 0), b"{}")
    later = [(name, b"2" if name == "v" else each) for name, each in headers]
    with Worker(tmp_path, cluster, topic) as worker:
        cluster.producer.send(topic, key=key, value=value, headers=later, partition=0)
        for bad in (b"\xff\x00", b'"\xff"', b"[" * 100_000):
            cluster.producer.send(topic, key=key, value=bad, headers=headers, partition=0)
        send(cluster, topic, envelope("d", 1, 0, event_time_ms=-(10**19) + 1), b"{}")
        send(cluster, topic, envelope("a\0b", 1, 0), b"{}")
        send(cluster, topic, envelope("d", 1, 0), b'{"n":1}')
        cluster.producer.flush()
        worker.wait_ready()
        row = wait_until(lambda: worker.row("d"), "the device", worker)
        assert row["tasks"]["shop-ipv"][0]["feature"] == {"n": 1}
        assert worker.get("/healthz")[1]["counts"]["refused"] == 6
        assert "envelope version 2, this side reads 1" in worker.output()


def delete_group(cluster):
    """As kafka-consumer-groups does; a worker that was ended is its member for some seconds."""

    def is_deleted():
        with cluster.admin() as admin:
            [answer] = admin.delete_groups([f"walle-cloud-t-{cluster.run_id}"]).values()
        assert answer in {"OK", NonEmptyGroupError.__name__}
        return answer == "OK"

    wait_until(is_deleted, "the group to be empty")


def test_a_topic_that_is_made_anew_under_a_worker(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.send("d1", 100)
        truth.wait(worker)
        cluster.delete([topic])
        cluster.topic(topic)
        truth.send("d1", 20)
        code, line = end_of(worker)
        assert code == 9
        said = ("the topic was recreated", "is gone", "that were read are gone")
        assert any(each in line for each in said)
    with Worker(tmp_path, cluster, topic) as worker:
        assert end_of(worker)[0] == 9
    # the table stays, and counts nothing twice
    with Worker(tmp_path, cluster, topic, "--on-missing", "earliest") as worker:
        worker.wait_ready()
        truth.wait(worker)


def test_offsets_of_the_group_that_are_lost_change_nothing(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        send_to_all(truth, 20)
        truth.wait(worker)
        assert worker.stop() == 0
    delete_group(cluster)
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        send_to_all(truth, 5)
        truth.wait(worker)


def test_a_damaged_disk_is_one_line_and_a_new_one_begins(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.send("d1", 30)
        truth.wait(worker)
        assert worker.stop() == 0
    for manifest in (tmp_path / "w").rglob("MANIFEST*"):
        manifest.write_bytes(b"garbage" * 10)
    with Worker(tmp_path, cluster, topic) as worker:
        code, line = end_of(worker)
        assert code == 6
        assert "is damaged: restore it from a copy or use a new --data-dir" in line
    with Worker(tmp_path, cluster, topic, name="new") as worker:
        worker.wait_ready()
        truth.wait(worker)


def test_a_full_disk_is_one_line_and_nothing_is_lost_or_twice(cluster, topic, truth, tmp_path):
    full = (
        "import resource, sys; from walle_stream.cli.__main__ import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)); sys.exit(main())"
    )
    with Worker(tmp_path, cluster, topic, program=("-c", full, "cloud")) as worker:
        worker.wait_ready()
        for device in DEVICES:
            truth.send(device, 800)
        truth.cluster.flush()
        code, line = end_of(worker)
        assert code == StoreFullError.exit_code
        assert "full disk" in line
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.wait(worker)


def test_a_second_worker_on_a_data_directory_or_a_port_is_refused(cluster, topic, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        with Worker(tmp_path, cluster, topic) as other:
            assert end_of(other)[0] == 7
        with Worker(tmp_path, cluster, topic, "--web-port", worker.port, name="v") as other:
            code, line = end_of(other)
            assert (code, "give another --web-port" in line) == (2, True)


def test_look_ups_while_everything_moves_are_right_or_503(
    cluster, topic, truth, tmp_path, of_driver
):
    seen, ended = {}, threading.Event()

    def ask(worker):
        last = dict.fromkeys(DEVICES, 0)
        while not ended.is_set():
            for device in DEVICES:
                status, row = worker.get(f"/features/{device}")
                assert status in {0, 200, 404, 503}
                count = row["incarnations"][0]["features"] if status == 200 else 0
                if status == 404 and last[device]:
                    seen[device] = "it was unknown"
                if count and count < last[device]:
                    seen[device] = f"{last[device]}, then {count}"
                last[device] = max(last[device], count)

    with two_workers(tmp_path, cluster, topic, *of_driver) as (one, two):
        asking = threading.Thread(target=ask, args=(one,))
        asking.start()
        try:
            send_to_all(truth, 50)
            truth.wait(one)
            with Worker(tmp_path, cluster, topic, *of_driver, name="three") as three:
                three.wait_ready()
                wait_until(lambda: held(three), "partitions of the third", three)
                send_to_all(truth, 20)
                two.kill()
                truth.wait(one)
                assert three.stop() == 0
            send_to_all(truth, 20)
            truth.wait(one)
        finally:
            ended.set()
            asking.join()
    assert not seen
    assert {hash_of(device) for device in DEVICES} == {0, 1, 2, 3}
