"""What the tests of the cloud side share: topics, records, workers in processes of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager
from pathlib import Path

from walle_stream.wire.record import RecordEnvelope, encode_record

ROOT = Path(__file__).parents[3]
DEADLINE_S = 120


def wait_until(condition, what, worker=None):
    """Ask until a condition holds, and return what it said."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= deadline:
            told = worker and (worker.get("/healthz"), worker.output()[-2_000:])
            raise AssertionError(f"waited {DEADLINE_S} s for {what}: {told}")
        if worker is not None:
            assert worker.process.poll() is None, worker.output()
        time.sleep(0.05)


class Cluster:
    """A broker: makes topics of unique names, and deletes all that came of them."""

    def __init__(self, address):
        from kafka import KafkaProducer

        self.address = address
        self.sent = []  # futures
        self.run_id = uuid.uuid4().hex[:10]
        self.producer = KafkaProducer(
            bootstrap_servers=address,
            acks="all",
            enable_idempotence=True,
            compression_type="zstd",  # as the tunnel does unless told
        )

    def topic(self, name, partitions=4):
        from kafka.admin import NewTopic

        topic = name if self.run_id in name else f"{name}-{self.run_id}"
        with self.admin() as admin:
            admin.create_topics(
                [NewTopic(name=topic, num_partitions=partitions, replication_factor=1)]
            )
        return topic

    def topics(self, *words):
        """Names of those that came of this test, and have the words in theirs."""
        with self.admin() as admin:
            names = admin.list_topics()
        return [name for name in names if all(word in name for word in (self.run_id, *words))]

    def delete(self, names):
        with self.admin() as admin:
            admin.delete_topics(names)
        wait_until(lambda: not set(names) & set(self.topics()), "the topics to be gone")

    def flush(self):
        """Wait until all that was sent is in its topic."""
        self.producer.flush()
        for each in self.sent:
            each.get(0)
        self.sent.clear()

    @contextmanager
    def admin(self):
        from kafka.admin import KafkaAdminClient

        # each time another one: tests kill the broker, and a client that saw that stays confused
        client = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            yield client
        finally:
            client.close()

    def close(self):
        self.producer.close()
        if made := self.topics():
            self.delete(made)


def envelope(device, number, partition, **changed):
    fields = {
        "device_id": device,
        "incarnation": "ab" * 8,
        "partition": partition,
        "epoch": 1,
        "sequence_number": number,
        "task": "shop-ipv",
        "task_version": "1",
        "event_time_ms": 1_000 + number,
    }
    return RecordEnvelope(**{**fields, **changed})


def send(cluster, topic, made, value, partition=None):
    """Send a record to the partition that its envelope says, or to another."""
    key, body, headers = encode_record(made, value)
    place = made.partition if partition is None else partition
    sent = cluster.producer.send(topic, key=key, value=body, headers=headers, partition=place)
    cluster.sent.append(sent)
    return sent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Worker:
    """``walle cloud``, or another program with its options, in a process of its own."""

    def __init__(
        self,
        folder,
        cluster,
        features,
        *arguments,
        overrides=(),
        name="w",
        program=("-m", "walle_stream.cli", "cloud"),
    ):
        self.port = free_port()
        self.log = folder / f"{name}-{uuid.uuid4().hex[:6]}.log"
        overrides = [
            f"metadata.name=t-{cluster.run_id}",
            f"spec.tunnel.brokers={cluster.address}",
            f"spec.tunnel.topic={features}",
            f"spec.source.brokers={cluster.address}",
            *overrides,
        ]
        sets = [part for each in overrides for part in ("--set", each)]
        command = [sys.executable, *program, str(ROOT / "configs/ipv-kafka.yaml")]
        command += [*sets, "--data-dir", str(folder / name), "--web-port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *map(str, arguments)], stdout=log, stderr=log, env=os.environ
            )

    def output(self):
        return self.log.read_text()

    def wait_ready(self):
        wait_until(lambda: ": ready, http" in self.output(), "the worker", self)
        return self

    def get(self, path):
        """Return status and JSON of a page; (0, None) while nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=10
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, None

    def row(self, device):
        status, row = self.get(f"/features/{device}")
        return row if status == 200 else None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *found):
        self.kill()
