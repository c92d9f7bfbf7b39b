"""The cloud side when topics, brokers, disks and other workers go: all there once, or one line."""

import asyncio
import http.client
import json
import random
import shutil
import signal
import sys
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from kafka.admin import ConfigResource
from kafka.errors import NonEmptyGroupError

sys.path.insert(0, str(Path(__file__).parent))
from cloud_truth import PARTITIONS, Truth, hash_of, merged
from cloud_worker import DEADLINE_S, Cluster, Worker, envelope, send, wait_until

from kafka import KafkaConsumer, TopicPartition
from walle_connectors.faust.device_row import is_older_row
from walle_connectors.faust.group import held_partitions
from walle_stream.wire.record import encode_record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.skipif(find_spec("faust") is None, reason="the extra `cloud` is not installed"),
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

DEVICES = [f"d{number}" for number in range(16)]
PATIENCE = ("--patience", "10")


@pytest.fixture
def cluster(address):
    made = Cluster(address)
    yield made
    made.close()


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


@contextmanager
def two_workers(folder, cluster, topic):
    """Begin two workers; the first ends soon where it stands still."""
    with (
        Worker(folder, cluster, topic, *PATIENCE, name="one") as one,
        Worker(folder, cluster, topic, name="two") as two,
    ):
        one.wait_ready()
        two.wait_ready()
        yield one, two


def test_a_worker_that_dies_leaves_its_partitions_to_another(cluster, topic, truth, tmp_path):
    with two_workers(tmp_path, cluster, topic) as (one, two):
        for device in DEVICES:
            truth.send(device, 100)
        cluster.producer.flush()
        wait_until(lambda: merged(two) > 0 or merged(one) > 0, "some features", one)
        options = {"bootstrap_servers": cluster.address}
        group = f"walle-cloud-t-{cluster.run_id}"
        # None while they move
        held = wait_until(lambda: asyncio.run(held_partitions(options, group, topic)), "an answer")
        assert held == set(range(PARTITIONS))
        two.kill()
        for device in DEVICES:
            truth.send(device, 20)
        if not stalls(truth, one):
            return
    with Worker(tmp_path, cluster, topic, name="one") as one:
        truth.wait(one)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_broker_that_goes_while_partitions_move(broker, cluster, topic, truth, tmp_path, fault):
    with two_workers(tmp_path, cluster, topic) as (one, two):
        for device in DEVICES:
            truth.send(device, 100)
        cluster.producer.flush()
        wait_until(lambda: merged(one) > 0, "some features", one)
        broker.kill() if fault == "kill" else broker.pause()
        two.kill()
        for device in DEVICES:
            truth.send(device, 20)  # waits in the producer
        broker.heal()
        if not stalls(truth, one):
            assert one.stop() == 0
            return
    with Worker(tmp_path, cluster, topic, name="one") as one:
        truth.wait(one)


def stalls(truth, worker):
    """Wait for all features; true where the worker ended with 14 before.

    Faust sometimes drops what it fetches while partitions move; started again it reads on.
    """
    try:
        truth.wait(worker)
    except AssertionError:
        if worker.process.poll() != 14:
            raise
        return True
    return False


def test_a_worker_that_comes_back_after_its_partitions_moved(cluster, topic, truth, tmp_path):
    with ExitStack() as stack:

        def begin(name):
            return stack.enter_context(Worker(tmp_path, cluster, topic, *PATIENCE, name=name))

        one, two = begin("one"), begin("two")
        one.wait_ready()
        two.wait_ready()
        for device in DEVICES:
            truth.send(device, 200)
        cluster.producer.flush()
        wait_until(lambda: merged(two) > 0, "some features", two)
        two.process.send_signal(signal.SIGSTOP)  # with records in hand, for longer than its session
        for device in DEVICES:
            truth.send(device, 20)
        while stalls(truth, one):
            one = begin("one")
        two.process.send_signal(signal.SIGCONT)
        for device in DEVICES:
            truth.send(device, 20)
        while stalls(truth, two):  # it asks the other for what it lost
            two = begin("two")
        while stalls(truth, one):
            one = begin("one")
    # what the zombie still wrote is in the changelog, too
    with Worker(tmp_path, cluster, topic, name="third") as third:
        third.wait_ready()
        truth.wait(third)


def test_a_worker_that_was_stopped_answers_nothing_from_before(cluster, topic, truth, tmp_path):
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(Worker(tmp_path, cluster, topic, *patience, name=name))
            for name, patience in (("one", PATIENCE), ("two", ()))
        )
        one.wait_ready()
        two.wait_ready()
        for device in DEVICES:
            truth.send(device, 20)
        truth.wait(two)
        two.process.send_signal(signal.SIGSTOP)
        for device in DEVICES:
            truth.send(device, 5)
        while stalls(truth, one):
            one = stack.enter_context(Worker(tmp_path, cluster, topic, *PATIENCE, name="one"))
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


def test_older_rows_of_a_worker_that_was_cut_off_hide_nothing(cluster, topic, truth, tmp_path):
    def changelog():
        """The rows of a device in order, as compaction would look at them."""
        with closing(KafkaConsumer(bootstrap_servers=cluster.address)) as consumer:
            place = TopicPartition(name, hash_of("d1"))
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            consumer.seek_to_beginning(place)
            found = []
            while consumer.position(place) < end:
                for records in consumer.poll(200).values():
                    found += [each.value for each in records if each.key == b"d1"]
            return found

    name = f"walle-cloud-t-{cluster.run_id}-devices-changelog"
    beside = next(each for each in DEVICES if each != "d1" and hash_of(each) == hash_of("d1"))
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.send("d1", 20)
        truth.wait(worker)
        old = changelog()[3]
        cluster.producer.send(name, key=b"d1", value=old, partition=hash_of("d1"))
        truth.send(beside, 1)
        truth.wait(worker)
        wait_until(lambda: changelog()[-1] != old, "the row once more", worker)
        assert is_older_row(old, changelog()[-1])
        assert worker.stop() == 0
    # nobody writes behind this one
    cluster.producer.send(name, key=b"d1", value=old, partition=hash_of("d1"))
    cluster.producer.flush()
    with Worker(tmp_path, cluster, topic, name="other") as worker:
        worker.wait_ready()
        wait_until(lambda: changelog()[-1] != old, "the row once more", worker)
        truth.wait(worker)
        assert changelog().count(old) == 3


def test_look_ups_never_answer_from_a_table_that_is_not_recovered(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        for device in DEVICES:
            truth.send(device, 300)
        worker.wait_ready()
        truth.wait(worker)
        assert worker.stop() == 0
    shutil.rmtree(tmp_path / "w")
    found = set()
    with Worker(tmp_path, cluster, topic) as worker:
        while "walle cloud: ready" not in worker.output():
            assert worker.process.poll() is None, worker.output()
            status, row = worker.get(f"/features/{DEVICES[0]}")
            found.add((status, row["incarnations"][0]["features"] if status == 200 else None))
            found.add((worker.get("/healthz")[0], None))
    # 0: nobody listens yet; 200: it was recovered before it said so
    assert found <= {(0, None), (503, None), (200, 300), (200, None)}


def test_killed_while_it_recovers_its_table_again_and_again(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic) as worker:
        for device in DEVICES:
            truth.send(device, 200)
        worker.wait_ready()
        truth.wait(worker)
    chance = random.Random(7)
    for _ in range(4):
        with Worker(tmp_path, cluster, topic, name="other") as worker:
            # it listens before it has its partitions
            wait_until(lambda worker=worker: worker.get("/healthz")[0], "its pages", worker)
            for _ in range(chance.randint(0, 60)):
                worker.get("/healthz")
            truth.send(chance.choice(DEVICES), 5)
    with Worker(tmp_path, cluster, topic, name="other") as worker:
        worker.wait_ready()
        truth.wait(worker)


def test_features_that_are_too_many_bytes_for_a_row_end_no_worker(cluster, topic, tmp_path):
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
        assert row["tasks"]["shop-ipv"][0]["sequence_number"] == 12
        # the table's records are at the broker: nothing is left to commit
        assert worker.stop() == 0


def test_records_that_nobody_could_merge_end_no_worker(cluster, topic, tmp_path):
    key, value, headers = encode_record(envelope("d", 1, 0), b"{}")
    later = [(name, b"2" if name == "v" else each) for name, each in headers]
    with Worker(tmp_path, cluster, topic) as worker:
        cluster.producer.send(topic, key=key, value=value, headers=later, partition=0)
        cluster.producer.send(topic, key=key, value=b"\xff\x00", headers=headers, partition=0)
        send(cluster, topic, envelope("d", 1, 0, event_time_ms=-(10**19) + 1), b"{}")
        send(cluster, topic, envelope("__faust\0offset__", 1, 0), b"{}")
        send(cluster, topic, envelope("d", 1, 0), b'{"n":1}')
        cluster.producer.flush()
        worker.wait_ready()
        row = wait_until(lambda: worker.row("d"), "the device", worker)
        assert row["tasks"]["shop-ipv"][0]["feature"] == {"n": 1}
        assert worker.get("/healthz")[1]["counts"]["refused"] == 4
        assert "envelope version 2, this side reads 1" in worker.output()


def forget_offsets(cluster, folder, topic):
    """Do as the line says where Kafka has not deleted the topic's offsets with it."""
    with Worker(folder, cluster, topic) as worker:
        wait_until(
            lambda: worker.process.poll() or "walle cloud: ready" in worker.output(), "its start"
        )
        if worker.process.poll() is None:
            return
        assert worker.process.returncode == 9
        [line] = worker.output().splitlines()
        assert f"of topic {topic!r} ends at 20, but group" in line
    delete_group(cluster)


def delete_group(cluster):
    """As kafka-consumer-groups does; a worker that was ended is its member for some seconds."""

    def is_deleted():
        with cluster.admin() as admin:
            [answer] = admin.delete_groups([f"walle-cloud-t-{cluster.run_id}"]).values()
        assert answer in {"OK", NonEmptyGroupError.__name__}
        return answer == "OK"

    wait_until(is_deleted, "the group to be empty")


def test_a_topic_that_is_made_anew_under_a_worker(cluster, topic, truth, tmp_path):
    with Worker(tmp_path, cluster, topic, "--patience", "5") as worker:
        worker.wait_ready()
        truth.send("d1", 100)
        truth.wait(worker)
        cluster.delete([topic])
        cluster.topic(topic)
        truth.send("d1", 20)
        code, line = end_of(worker)
        assert code == 14
        assert f"topic={topic!r}" in line or f"topic {topic!r}" in line
    forget_offsets(cluster, tmp_path, topic)
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.wait(worker)


@pytest.mark.parametrize("is_disk_lost", [False, True])
def test_a_table_whose_changelog_is_gone_is_one_line(cluster, topic, truth, tmp_path, is_disk_lost):
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.send("d1", 30)
        truth.wait(worker)
        assert worker.stop() == 0
    cluster.delete(cluster.topics("changelog"))
    if is_disk_lost:
        shutil.rmtree(tmp_path / "w")
    with Worker(tmp_path, cluster, topic) as worker:
        code, line = end_of(worker)
        assert code == 9
        assert "has read 30 records" in line
        assert len(worker.output().splitlines()) == 1
    delete_group(cluster)
    if not is_disk_lost:
        with Worker(tmp_path, cluster, topic) as worker:
            code, line = end_of(worker)
            assert code == 6
            assert "has more of the table than the changelog topics" in line
        shutil.rmtree(tmp_path / "w")
    # as the line says: the table is made anew of what the topic has
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.send("d1", 5)
        truth.wait(worker)


def test_a_changelog_that_deletes_is_one_line(cluster, topic, truth, tmp_path):
    names = [f"walle-cloud-t-{cluster.run_id}-{table}-changelog" for table in ("devices", "epochs")]
    for name in names:
        cluster.topic(name)  # a broker's default is to delete what is old
    with Worker(tmp_path, cluster, topic) as worker:
        code, line = end_of(worker)
        assert code == 13
        assert f"topic {names[0]!r} has cleanup.policy=delete" in line
    with cluster.admin() as admin:
        admin.alter_configs(
            [ConfigResource("TOPIC", name, {"cleanup.policy": "compact"}) for name in names]
        )
    with Worker(tmp_path, cluster, topic) as worker:
        worker.wait_ready()
        truth.send("d1", 5)
        truth.wait(worker)


def test_a_damaged_disk_is_one_line_and_a_new_one_recovers(cluster, topic, truth, tmp_path):
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
