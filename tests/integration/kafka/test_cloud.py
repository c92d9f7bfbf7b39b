"""The cloud side over a real broker: every feature once, whatever is killed."""

import random
import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_truth import Truth, at_least, merged
from cloud_worker import Worker, envelope, send, wait_until

from walle_connectors.kafka.dead_letters.archive import KafkaDeadLetterArchive
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_stream.app.queries.query import features_records

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]


def test_features_are_looked_up_by_device(cluster, tmp_path):
    topic = cluster.topic("features")
    truth = Truth(cluster, topic)
    with Worker(tmp_path, cluster, topic, "--keep", "2") as worker:
        truth.send("phone/1 é", 3)
        worker.wait_ready()
        cluster.producer.flush()
        path = "/features/phone%2F1%20%C3%A9"
        wait_until(lambda: worker.get(path)[0] == 200, "the device", worker)
        wait_until(
            lambda: worker.get(path)[1]["incarnations"][0]["features"] == 3, "its features", worker
        )
        row = worker.get(path)[1]
        assert [each["feature"]["n"] for each in row["tasks"]["shop-ipv"]] == [3, 2]
        assert worker.get(path + "?task=other")[1]["tasks"] == {}
        assert worker.get("/features/nobody")[0] == 404
        assert worker.get("/healthz")[1]["counts"]["features"] == 3
        for is_running in (True, False):  # a table is read beside the worker, too
            assert not is_running or worker.process.poll() is None
            found = list(features_records(tmp_path / "w"))
            assert {each.device_id for each in found} == {"phone/1 é"}
            assert [each.sequence_number for each in found][-2:] == [2, 3]
            assert not is_running or worker.stop() == 0
        assert "Traceback" not in worker.output()


def test_what_is_no_record_or_of_an_older_owner_is_refused_and_the_rest_goes_on(cluster, tmp_path):
    topic = cluster.topic("features")
    with Worker(tmp_path, cluster, topic) as worker:
        cluster.producer.send(topic, key=b"d", value=b"{}", partition=0)
        cluster.producer.send(topic, key=b"d", value=None, partition=0)
        send(cluster, topic, envelope("d", 1, 0, epoch=2), b'{"n":1}')
        send(cluster, topic, envelope("d", 2, 0, epoch=1), b'{"zombie":1}')
        send(cluster, topic, envelope("e", 1, 1), b'{"n":1}', partition=0)
        send(cluster, topic, envelope("d", 2, 0, epoch=2), b'{"n":2}')
        cluster.producer.flush()
        worker.wait_ready()
        row = wait_until(lambda: at_least(worker, "d", 2), "both features", worker)
        assert [each["feature"] for each in row["tasks"]["shop-ipv"]] == [{"n": 2}, {"n": 1}]
        assert worker.get("/healthz")[1]["counts"]["refused"] == 4
        assert worker.get("/features/e")[0] == 404
        assert "epoch 1 of partition 0 is over, 2 was seen" in worker.output()
        # the fence is in the table, not in the process
        worker.kill()
    with Worker(tmp_path, cluster, topic) as worker:
        send(cluster, topic, envelope("d", 3, 0, epoch=1), b'{"zombie":1}')
        send(cluster, topic, envelope("d", 3, 0, epoch=2), b'{"n":3}')
        cluster.producer.flush()
        worker.wait_ready()
        row = wait_until(lambda: at_least(worker, "d", 3), "the feature", worker)
        assert row["tasks"]["shop-ipv"][0]["feature"] == {"n": 3}


def test_what_is_refused_is_in_the_topic_of_dead_letters(cluster, tmp_path, address):
    topic, letters = cluster.topic("features"), cluster.topic("letters", 1)
    overrides = [f"spec.deadLetters={{connector: kafka, brokers: '{address}', topic: {letters}}}"]
    model = KafkaDeadLetterModel(brokers=address, topic=letters)
    with Worker(tmp_path, cluster, topic, overrides=overrides) as worker:
        worker.wait_ready()
        cluster.producer.send(topic, key=b"d", value=b"{}", partition=0)
        send(cluster, topic, envelope("d", 1, 0, epoch=2), b'{"n":1}')
        # its partition's owner sends again what he has no acknowledgement of: no letter
        send(cluster, topic, envelope("d", 2, 0, epoch=1), b'{"zombie":1}')
        send(cluster, topic, envelope("e", 1, 1), b'{"n":1}', partition=0)
        send(cluster, topic, envelope("d", 2, 0, epoch=2), b'{"n":2}')
        cluster.producer.flush()
        wait_until(lambda: at_least(worker, "d", 2), "both features", worker)
        worker.kill()
    with Worker(tmp_path, cluster, topic, overrides=overrides) as worker:
        worker.wait_ready()
        send(cluster, topic, envelope("d", 3, 0, epoch=2), b'{"n":3}')
        cluster.producer.flush()
        wait_until(lambda: at_least(worker, "d", 3), "the feature", worker)
        assert worker.stop() == 0
        assert "Traceback" not in worker.output()
    with closing(KafkaDeadLetterArchive(model)) as archive:
        # some may be there twice: the first worker was killed before it committed
        found = {each.idempotency_key: each for each in archive.letters()}
    first, second = sorted(found.values(), key=lambda each: each.number)
    assert (first.letter.route, first.letter.origin) == ("decode", f"{topic}[0]@0")
    assert (second.letter.route, second.letter.device_id) == ("invalid", "e")
    assert (second.letter.task, second.letter.record) == ("shop-ipv", b'{"n":1}')
    assert "found in partition 0 of the topic" in second.letter.reason


@pytest.mark.parametrize("is_disk_lost", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_killed_in_the_middle_every_feature_is_there_once(cluster, tmp_path, is_disk_lost):
    chance = random.Random(is_disk_lost)
    topic = cluster.topic("features")
    truth = Truth(cluster, topic)
    devices = [f"d{number}" for number in range(12)]
    for kill in range(3):
        # a new disk has to get all from the changelog
        name = f"disk{kill}" if is_disk_lost else "disk"
        with Worker(tmp_path, cluster, topic, "--keep", "5", name=name) as worker:
            for device in devices:
                truth.send(device, 60)
                truth.again(device, chance.randint(1, 60))
            cluster.producer.flush()
            worker.wait_ready()
            some = chance.randint(1, 500)
            wait_until(
                lambda worker=worker, some=some: merged(worker) >= some, "some features", worker
            )
            worker.kill()
    with Worker(tmp_path, cluster, topic, "--keep", "5", name="last") as worker:
        worker.wait_ready()
        truth.wait(worker)
        assert worker.stop() == 0


def test_two_workers_share_the_partitions_and_answer_for_each_other(cluster, tmp_path):
    topic = cluster.topic("features")
    truth = Truth(cluster, topic)
    with (
        Worker(tmp_path, cluster, topic, name="one") as one,
        Worker(tmp_path, cluster, topic, name="two") as two,
    ):
        one.wait_ready()
        two.wait_ready()
        for number in range(16):
            truth.send(f"d{number}", 5)
        cluster.producer.flush()
        for worker in (one, two):
            truth.wait(worker)
        wait_until(lambda: one.get("/features/nobody")[0] == 404, "an answer of both", one)
        assert merged(one) > 0
        assert merged(two) > 0
        # its partitions go to the other, with their rows
        assert two.stop() == 0
        for number in range(16):
            truth.send(f"d{number}", 5)
        truth.wait(one)


def test_a_topic_that_is_not_there_is_one_line(cluster, tmp_path):
    with Worker(tmp_path, cluster, f"none-{cluster.run_id}") as worker:
        assert worker.process.wait(60) == 13
        assert "does not exist: walle topics FILE --create" in worker.output()
        assert len(worker.output().splitlines()) == 1


def test_a_broker_that_is_not_there_is_one_line_and_exit_code_12(cluster, tmp_path):
    overrides = ["spec.tunnel.brokers=127.0.0.1:1"]
    with Worker(tmp_path, cluster, "any", overrides=overrides) as worker:
        assert worker.process.wait(60) == 12
        assert worker.output().startswith(
            "walle: no broker answers (127.0.0.1:1: Connection refused)"
        )
        assert len(worker.output().splitlines()) == 1
