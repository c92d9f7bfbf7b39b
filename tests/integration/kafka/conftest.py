"""Brokers and topics for the tests against a real Kafka."""

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

import pytest

DEADLINE_S = 60


def wait_until(condition, what):
    """Ask until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.02)


class Topics:
    """Makes topics of one broker, writes to them, and deletes them in the end."""

    def __init__(self, address):
        from kafka import KafkaProducer
        from kafka.admin import KafkaAdminClient

        self.address = address
        self._admin = KafkaAdminClient(bootstrap_servers=address)
        self._producer = KafkaProducer(
            bootstrap_servers=address, acks="all", enable_idempotence=True
        )
        self._made = []

    def make(self, partitions=4, name=None, **settings):
        from kafka.admin import NewTopic

        name = name or f"source-{uuid.uuid4().hex[:12]}"
        self._admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        self._made.append(name)
        return name

    def delete(self, name):
        self._admin.delete_topics([name])

    def delete_before(self, name, partition, offset):
        from kafka import TopicPartition

        self._admin.delete_records({TopicPartition(name, partition): offset})

    def write(self, name, rows):
        """Write (key, value, partition or None, timestamp or None); dictionaries become JSON."""
        for key, value, *rest in rows:
            partition, timestamp_ms = [*rest, None, None][:2]
            self._producer.send(
                name,
                json.dumps(value).encode() if isinstance(value, dict) else value,
                key=key.encode() if isinstance(key, str) else key,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        self._producer.flush(DEADLINE_S)

    def close(self, *, keeps=False):
        for name in [] if keeps else self._made:
            self._admin.delete_topics([name], raise_errors=False)
        self._producer.close()
        self._admin.close()


@pytest.fixture(scope="session")
def address():
    """Of a broker that tests share and must not stop."""
    pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
    given = os.environ.get("WALLE_KAFKA")
    if not given:
        pytest.skip("WALLE_KAFKA gives no address of a broker")
    return given


@pytest.fixture(scope="session")
def topics(address):
    made = Topics(address)
    yield made
    made.close()


class OwnBroker:
    """A broker of one test, which may be killed: the jars lie in WALLE_KAFKA_LIBS."""

    def __init__(self, folder, libs):
        ports = []
        for _ in range(2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                ports.append(free.getsockname()[1])
        self.address, controller = f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"
        self._folder, self._process = folder, None
        self._java = ["java", "-Xmx320m", "-XX:+UseSerialGC", "-cp", f"{libs}/*"]
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        self._file = folder / "server.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        tool = ["kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c"]
        subprocess.run(
            [*self._java, *tool, self._file], check=True, capture_output=True, cwd=folder
        )

    def start(self):
        self._process = subprocess.Popen(
            [*self._java, "kafka.Kafka", self._file],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, "the broker to answer")

    def kill(self):
        self._process.kill()
        self._process.wait()

    def _answers(self):
        from kafka.admin import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            # kafka-python leaves a socket open for each connection that is refused
            socket.create_connection(self.address.split(":"), 1).close()
            KafkaAdminClient(bootstrap_servers=self.address, bootstrap_timeout_ms=1_000).close()
        except (KafkaError, OSError):
            return False
        return True


@pytest.fixture
def own_broker(tmp_path):
    libs = os.environ.get("WALLE_KAFKA_LIBS")
    if not (libs and shutil.which("java")):
        pytest.skip("WALLE_KAFKA_LIBS gives no folder of Kafka's jars, or there is no java")
    folder = Path(tmp_path) / "broker"
    folder.mkdir()
    broker = OwnBroker(folder, libs)
    broker.start()
    yield broker
    broker.kill()
