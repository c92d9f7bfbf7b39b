"""What must be in the cloud's table, computed in plain Python from what was sent."""

import json

from cloud_worker import envelope, send, wait_until

from walle_stream.cloud.heads import chain_digest
from walle_stream.wire.frame import FeatureRecord

PARTITIONS = 4


class Truth:
    """Sends features, and compares a worker's look-ups with all of them."""

    def __init__(self, cluster, topic):
        self.cluster, self.topic = cluster, topic
        self.devices = {}

    def send(self, device, count=1):
        digest, sent = self.devices.get(device, (b"", 0))
        for number in range(sent + 1, sent + count + 1):
            made = envelope(device, number, hash_of(device))
            value = json.dumps({"device": device, "n": number}).encode()
            digest = chain_digest(digest, as_feature(made, value))
            send(self.cluster, self.topic, made, value)
        self.devices[device] = digest, sent + count

    def again(self, device, number):
        """Deliver a record a second time."""
        value = json.dumps({"device": device, "n": number}).encode()
        send(self.cluster, self.topic, envelope(device, number, hash_of(device)), value)

    def wait(self, worker):
        """Wait until the table has all of it, and compare."""
        self.cluster.flush()
        for device, (digest, count) in self.devices.items():
            row = wait_until(
                lambda device=device, count=count: at_least(worker, device, count),
                f"{device}, {count} features",
                worker,
            )
            found = row["incarnations"][0]
            assert (found["features"], found["last_number"]) == (count, count)
            assert found["digest"] == digest.hex()
            assert row["gaps"] == 0


def as_feature(made, value):
    of = made.device_id, made.task, made.task_version, made.sequence_number
    return FeatureRecord(*of, value, made.encoding, made.event_time_ms)


def hash_of(device):
    return sum(device.encode()) % PARTITIONS


def at_least(worker, device, count):
    row = worker.row(device)
    return row if row and row["incarnations"][0]["features"] >= count else None


def merged(worker):
    shown = worker.get("/healthz")[1]
    return shown["counts"]["features"] if shown else 0
