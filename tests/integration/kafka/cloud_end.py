"""The cloud's end of a tunnel for tests of the devices' end: frames that come up, messages down."""

from contextlib import closing, contextmanager
from threading import Event

from walle_connectors.kafka.cloud.records import read_stretches
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.downlink import KafkaDownlinkSender
from walle_connectors.kafka.source.fetching import columns
from walle_connectors.kafka.topic_reader import TopicReader, within
from walle_connectors.kafka.topics import find_topics
from walle_stream.app.queries.query import features_records
from walle_stream.cloud.own_table import OwnTable
from walle_stream.cloud.partition_table import features_in
from walle_stream.store.keys import CLOUD_PREFIX
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, encode_downlink, encode_uplink
from walle_stream.wire.frame import encode_body
from walle_stream.wire.record import decode_record

_tick = Event()


class CloudEnd:
    def __init__(self, model):
        self.receiver = Receiver(model, model.topic)
        self.downlink_sender = KafkaDownlinkSender(model, 1 << 20) if model.down_topic else None

    def send_down(self, *envelopes, partition=0):
        """Send messages, and wait until the topic has them."""
        frames = [(partition, n, encode_downlink(each)) for n, each in enumerate(envelopes, 1)]
        self.downlink_sender.send(frames)
        missing = len(frames)
        while missing:
            missing -= len(list(self.downlink_sender.acks(partition)))
            _tick.wait(0.002)

    def close(self):
        self.receiver.close()
        if self.downlink_sender is not None:
            self.downlink_sender.close()


@contextmanager
def merging(model, folder):
    """Make a table of what comes up: gives its counts, and what takes the next records."""
    with PartitionStore.open(folder) as store, closing(CloudEnd(model)) as cloud:
        table, position = OwnTable(store), 0

        def step():
            nonlocal position
            frames = cloud.receiver.receive(position, 1 << 20)
            table.merge([data for _, data in frames])
            position += len(frames)
            return table.stats

        yield step
        table.close()


def merged_features(folder):
    """Return what such a table, or a run's data directory, has, in one order."""
    if (folder / "meta.json").exists():
        found = list(features_records(folder))
    else:
        with PartitionStore.open(folder, read_only=True) as store:
            found = list(features_in(store.space(CLOUD_PREFIX)))
    return sorted(found, key=lambda each: each.device_id)  # a device's stay in their order


class Receiver:
    """The way up: a position counts what was read, of all partitions."""

    def __init__(self, connection, topic):
        found = find_topics(connection, [NeededTopic(topic, "the test's")])[topic]
        self._none = dict.fromkeys(range(found.partitions), 0)
        self._reader = TopicReader(connection, topic)
        self._topic = topic
        self._next, self._read = {}, []

    def records(self, positions):
        return self._reader.take(self._none | dict(positions))

    def receive(self, position, max_bytes):
        for number, found in self.records(self._next).items():
            self._read += [(number, record) for record in found]
            self._next[number] = self._read[-1][1].offset + 1
        behind = self._read[position:]
        count = len(within([record for _, record in behind], max_bytes))
        return [
            (position + index, _frame(self._topic, *each))
            for index, each in enumerate(behind[:count], 1)
        ]

    def release(self, position):
        pass

    def close(self):
        self._reader.close()


def _frame(topic, lane, record):
    # empty for what is refused
    found, _ = read_stretches(topic, lane, columns([record], has_headers=True))
    if not found:
        return b""
    [of] = found
    number = 0
    if of.reports:
        [report] = of.reports
        number, body = report.number, report.body
    elif of.calls:
        asked, value = decode_record(record.key, record.value, record.headers)
        number = asked.sequence_number
        call = CloudCall(
            asked.device_id, number, asked.task, asked.task_version, asked.service, value
        )
        [body] = encode_calls([call], "none")
    else:
        number, body = of.records[0].sequence_number, encode_body(of.records, "none")
    return encode_uplink(UplinkEnvelope(of.partition, of.epoch, of.incarnation, number, body))
