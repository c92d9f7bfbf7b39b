"""A device and a cloud side that one record after another travels between.

Ours are the tunnel's own ends. The bare ones are kafka-python's producer and consumer with
the same settings and nothing else: what ours take beyond them is what the tunnel adds. All
ends live in one process, so both clocks are one; the broker and a link are others.
"""

import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final, NamedTuple, Protocol

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tunnel_parts.network import LinkedModel, Network
from tunnel_parts.payload import DEVICE, frame
from walle_connectors.brokers import Connection
from walle_connectors.kafka.cloud.reader import CloudReader, WorkerClient
from walle_connectors.kafka.downlink import KafkaDownlink, KafkaDownlinkSender
from walle_connectors.kafka.drivers import open_group
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.tunnel import KafkaUplink
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.cloud.partitions import Partitions, TableOptions
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink, encode_downlink

LOOK_S: Final = 0.0002
"""Ours are asked so often whether something has come: they never block."""

_PATIENCE_S: Final = 30.0
_HELD_BYTES: Final = 64 * 2**20


class Trip(NamedTuple):
    """Of one record, in milliseconds from before it was handed over."""

    received_ms: float
    """Until its receiver could read it: of a feature in the table of ``walle cloud``."""
    acked_ms: float
    """Until the sender knew that it is durable."""


class Ends(Protocol):
    """Sends a record and waits for it."""

    def trip(self, value: bytes) -> Trip:
        """Send one; blocks until it has arrived and is acknowledged."""
        ...

    def close(self) -> None:
        """Close both ends."""
        ...


def look_for(found: Callable[[], Any], what: str, pause_s: float = LOOK_S) -> Any:
    """Ask again and again until something is there.

    Args:
        found: Returns it, or something that is false.
        what: For the message.
        pause_s: Between two questions.

    Raises:
        TimeoutError: Nothing came.
    """
    deadline_s = time.perf_counter() + _PATIENCE_S
    while not (made := found()):
        if time.perf_counter() > deadline_s:
            raise TimeoutError(f"waited {_PATIENCE_S:g} s for {what}")
        time.sleep(pause_s)
    return made


class OursUp:
    """``KafkaUplink``, and a worker of the cloud side: received is what its table shows."""

    def __init__(self, network: Network) -> None:
        """Connect with the first record, and wait until the worker has its partition."""
        self._uplink = KafkaUplink(network.device, _HELD_BYTES)
        self._number = 0
        self._folder = TemporaryDirectory(prefix="walle-bench-")
        self._tables = Partitions(Path(self._folder.name), "bench:1", TableOptions(keep=1))
        topic = network.cloud.topic
        keys = {**network.cloud.reach(), "topic": topic, "group": f"{topic}-bench"}
        model = KafkaSourceModel.model_validate(keys)
        client = WorkerClient(model, is_member=True)
        group = open_group(client, model, has_headers=True)
        self._worker = CloudReader(client, group, model, self._tables, None, 1e3 * _PATIENCE_S)
        self._stopped = Event()
        self._thread = Thread(target=self._merge, daemon=True)
        self._thread.start()
        look_for(lambda: self._tables.ready, "the worker's partition")

    def _merge(self) -> None:
        while not self._stopped.is_set():
            self._worker.read()
        self._worker.close()

    def trip(self, value: bytes) -> Trip:
        """Send a frame of one feature."""
        self._number += 1
        made = frame(self._number, self._number, [value])
        marks: dict[str, float] = {}
        begin_s = time.perf_counter()
        self._uplink.send([(0, self._number, made)])

        def shown() -> bytes | None:
            kept, _ = self._tables.look_up(DEVICE)
            is_there = kept is not None and kept.rows[0][1] == self._number
            return kept.rows[0][2].feature if kept is not None and is_there else None

        found: bytes | None = None

        def look() -> bool:
            nonlocal found
            if found is None:
                found = shown()
                if found is not None:
                    marks["received"] = time.perf_counter()
            if "acked" not in marks and list(self._uplink.acks(0)):
                marks["acked"] = time.perf_counter()
            return len(marks) == len(Trip._fields)

        look_for(look, f"feature {self._number}")
        if found != value:
            raise RuntimeError(f"feature {self._number} came back as another one")
        return _trip(begin_s, marks)

    def close(self) -> None:
        """Close both ends."""
        self._uplink.close()
        self._stopped.set()
        self._thread.join()
        self._tables.close()
        self._folder.cleanup()


class OursDown:
    """``KafkaDownlinkSender`` and ``KafkaDownlink``."""

    def __init__(self, network: Network) -> None:
        """Connect with the first message."""
        self._sender = KafkaDownlinkSender(network.cloud, 2**24)
        self._downlink = KafkaDownlink(network.device)
        self._position = self._number = 0

    def trip(self, value: bytes) -> Trip:
        """Send a message to the device."""
        marks: dict[str, float] = {}
        data = b""
        self._number += 1
        message = encode_downlink(DownlinkEnvelope(DEVICE, "message", value, "bench", self._number))
        begin_s = time.perf_counter()
        self._sender.send([(0, self._number, message)])

        def look() -> bool:
            nonlocal data
            if "received" not in marks:
                found = self._downlink.receive(0, self._position, 2**24)
                if found:
                    marks["received"] = time.perf_counter()
                    ((self._position, data),) = found
            if "acked" not in marks and list(self._sender.acks(0)):
                marks["acked"] = time.perf_counter()
            return len(marks) == len(Trip._fields)

        look_for(look, "a message")
        if decode_downlink(data).payload != value:
            raise RuntimeError("a message came down as another one")
        return _trip(begin_s, marks)

    def close(self) -> None:
        """Close both ends."""
        self._sender.close()
        self._downlink.close()


class Bare:
    """A producer and a consumer, without our tunnel."""

    def __init__(self, network: Network, *, is_up: bool) -> None:
        """Connect.

        Args:
            network: Both sides.
            is_up: Whether the producer is the device's.
        """
        sender, receiver = network if is_up else reversed(network)
        self._topic = str(network.cloud.topic if is_up else network.cloud.down_topic)
        self._producer = bare_producer(sender)
        self._producer.partitions_for(self._topic)
        self._stopped = Event()
        self._came: SimpleQueue[tuple[float, Any]] = SimpleQueue()
        self._consumer = bare_consumer(receiver, self._topic)
        self._thread = Thread(target=self._receive, daemon=True)
        self._thread.start()

    def trip(self, value: bytes) -> Trip:
        """Send a record."""
        marks: dict[str, float] = {}
        begin_s = time.perf_counter()
        future = self._producer.send(self._topic, value, DEVICE.encode(), partition=0)
        future.add_callback(lambda _: marks.setdefault("acked", time.perf_counter()))
        marks["received"], found = self._came.get(timeout=_PATIENCE_S)
        future.get(timeout=_PATIENCE_S)
        look_for(lambda: "acked" in marks, "an acknowledgement")
        if found.value != value:
            raise RuntimeError("a record came back as another one")
        return _trip(begin_s, marks)

    def _receive(self) -> None:
        while not self._stopped.is_set():
            for records in self._consumer.poll(timeout_ms=100).values():
                now_s = time.perf_counter()
                for record in records:
                    self._came.put((now_s, record))

    def close(self) -> None:
        """Close both ends."""
        self._stopped.set()
        self._thread.join()
        self._consumer.close(autocommit=False)
        self._producer.close(timeout=5)


def bare_producer(model: KafkaTunnelModel) -> Any:
    """Make a producer with the settings that the tunnel's has."""
    return KafkaProducer(
        **_bare_options(model),
        acks="all",
        enable_idempotence=True,
        compression_type=None if model.codec == "none" else model.codec,
        linger_ms=model.linger_ms,
        batch_size=256 * 1024,
        max_request_size=model.max_bytes,
    )


def bare_consumer(model: KafkaTunnelModel, topic: str, offset: int = 0) -> Any:
    """Make a consumer of partition 0."""
    consumer = KafkaConsumer(
        **_bare_options(model), enable_auto_commit=False, auto_offset_reset="none"
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, offset)
    return consumer


def open_ends(who: str, way: str, network: Network) -> Ends:
    """Open a pair of ends.

    Args:
        who: ``ours`` or ``bare``.
        way: ``up`` or ``down``.
        network: Both sides.
    """
    if who == "bare":
        return Bare(network, is_up=way == "up")
    return OursUp(network) if way == "up" else OursDown(network)


def _bare_options(model: Connection) -> dict[str, Any]:
    options = {"bootstrap_servers": list(model.brokers), "metrics_enabled": False}
    if isinstance(model, LinkedModel):
        options["proxy_url"] = model.client_options()["proxy_url"]
    if model.tls is not None:
        # kafka-python's own TLS, which resumes nothing
        files = {"ca": model.tls.ca, "cert": model.tls.cert, "key": model.tls.key}
        options["security_protocol"] = "SSL"
        options |= {f"ssl_{name}file": str(each) for name, each in files.items() if each}
    return options


def _trip(begin_s: float, marks: dict[str, float]) -> Trip:
    return Trip(*((marks[name] - begin_s) * 1e3 for name in ("received", "acked")))
