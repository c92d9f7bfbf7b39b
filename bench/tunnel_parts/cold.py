"""The first record of a new client: connections, handshakes and metadata are in its time."""

import random
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from vm_parts.measuring import quartiles

from tunnel_parts.ends import bare_consumer, bare_producer, look_for
from tunnel_parts.network import Network, Reach, open_network
from tunnel_parts.payload import DEVICE, feature, frame
from walle_connectors.brokers import Connection
from walle_connectors.kafka.downlink import KafkaDownlink, KafkaDownlinkSender
from walle_connectors.kafka.tunnel import KafkaUplink
from walle_connectors.tls_sessions import TlsSessions, shared_sessions
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink

_HELD_BYTES: Final = 64 * 2**20

# a request that every broker answers: ApiVersions, version 0, without a client id
_ASK: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")

type _First = Callable[[Network, bytes, int], float]  # the record, and where it lies (down)


def measure_cold(
    reach: Reach, way: str, sizes: list[int], samples: int, seed: int
) -> list[dict[str, Any]]:
    """Make clients anew for every record.

    Args:
        reach: Where the broker is.
        way: ``up`` (to the acknowledgement) or ``down`` (to the device's hands).
        sizes: In bytes, before compression.
        samples: Of each size and state.
        seed: Of the contents.

    Returns:
        A row for each of ``who`` and ``state`` (``cold``; ``resumed``: with the TLS session of
        the client before) and size: quartiles as ``ms``, ``full`` and ``resumed`` handshakes
        of a client.
    """
    rng = random.Random(seed)
    sessions = _sessions(reach)
    kinds: list[tuple[str, str, _First]] = [("ours", "cold", _FIRSTS["ours", way])]
    if sessions is not None:
        kinds.append(("ours", "resumed", _FIRSTS["ours", way]))
    kinds.append(("bare", "cold", _FIRSTS["bare", way]))
    rows = []
    with open_network(reach) as network:
        for _, _, first in kinds:  # what is made once in a process
            value = feature(rng, sizes[0])
            first(network, value, _sent_down(network, value))
        for size in sizes:
            for who, state, first in kinds:
                made, full, resumed = [], [], []
                for _ in range(samples):
                    value = feature(rng, size)
                    position = _sent_down(network, value) if way == "down" else 0
                    if sessions is not None and state == "cold":
                        sessions.forget()
                    before = _counts(sessions)
                    made.append(first(network, value, position))
                    after = _counts(sessions)
                    full.append(after[0] - before[0])
                    resumed.append(after[1] - before[1])
                rows.append(
                    {
                        "way": way,
                        "who": who,
                        "state": state,
                        "size": size,
                        "samples": samples,
                        "ms": quartiles(made),
                        "full": max(full),
                        "resumed": max(resumed),
                    }
                )
    return rows


def measure_handshake(reach: Reach, samples: int) -> list[dict[str, Any]]:
    """Connect and shake hands over TLS, whole and with a session, in turn.

    Returns:
        A row for each: ``state``, quartiles of ``wall_ms`` and of our own ``cpu_ms``,
        and ``reused``, how many the broker took the session of.
    """
    made: dict[str, list[tuple[float, float, bool]]] = {"whole": [], "resumed": []}
    with open_network(reach) as network:
        sessions = TlsSessions(*_files(network.device))
        host, _, port = network.device.brokers[0].rpartition(":")
        for _ in range(samples + 1):
            sessions.forget()
            for found in made.values():
                cpu_s, begin_s = time.process_time(), time.perf_counter()
                plain = socket.create_connection((host, int(port)), 10)
                with sessions.wrap_socket(plain, server_hostname=host) as encrypted:
                    wall_s = time.perf_counter() - begin_s
                    cpu_s = time.process_time() - cpu_s
                    found.append((wall_s * 1e3, cpu_s * 1e3, bool(encrypted.session_reused)))
                    encrypted.sendall(_ASK)
                    encrypted.recv(4_096)  # tickets come before it
    return [
        {
            "state": state,
            # the first of a process is another one
            "wall_ms": quartiles([each[0] for each in found[1:]]),
            "cpu_ms": quartiles([each[1] for each in found[1:]]),
            "samples": samples,
            "reused": sum(each[2] for each in found[1:]),
        }
        for state, found in made.items()
    ]


def _up(network: Network, value: bytes, _position: int) -> float:
    made = frame(1, 1, [value])
    begin_s = time.perf_counter()
    uplink = KafkaUplink(network.device, _HELD_BYTES)
    try:
        uplink.send([(0, 1, made)])
        look_for(lambda: list(uplink.acks(0)), "an acknowledgement")
        return (time.perf_counter() - begin_s) * 1e3
    finally:
        uplink.close()


def _bare_up(network: Network, value: bytes, _position: int) -> float:
    begin_s = time.perf_counter()
    producer = bare_producer(network.device)
    try:
        producer.send(network.device.topic, value, DEVICE.encode(), partition=0).get(30)
        return (time.perf_counter() - begin_s) * 1e3
    finally:
        producer.close(timeout=5)


def _down(network: Network, _value: bytes, position: int) -> float:
    begin_s = time.perf_counter()
    downlink = KafkaDownlink(network.device)
    try:
        look_for(lambda: downlink.receive(0, position, 2**24), "a message")
        return (time.perf_counter() - begin_s) * 1e3
    finally:
        downlink.close()


def _bare_down(network: Network, _value: bytes, position: int) -> float:
    begin_s = time.perf_counter()
    consumer = bare_consumer(network.device, str(network.device.down_topic), position)
    try:
        look_for(lambda: consumer.poll(timeout_ms=100), "a record")
        return (time.perf_counter() - begin_s) * 1e3
    finally:
        consumer.close(autocommit=False)


def _sent_down(network: Network, value: bytes) -> int:
    # nobody else writes there: the topic's end says which offset it got
    sender = KafkaDownlinkSender(network.cloud, 2**24)
    try:
        sender.send([(0, 1, encode_downlink(DownlinkEnvelope(DEVICE, "message", value)))])
        look_for(lambda: list(sender.acks(0)), "an acknowledgement")
    finally:
        sender.close()
    consumer = bare_consumer(network.cloud, str(network.cloud.down_topic), 0)
    try:
        (end,) = consumer.end_offsets(consumer.assignment()).values()
        return int(end) - 1
    finally:
        consumer.close(autocommit=False)


_FIRSTS: Final[dict[tuple[str, str], _First]] = {
    ("ours", "up"): _up,
    ("bare", "up"): _bare_up,
    ("ours", "down"): _down,
    ("bare", "down"): _bare_down,
}


def _sessions(reach: Reach) -> TlsSessions | None:
    model = Connection.model_validate({"brokers": reach.address, "tls": reach.tls or None})
    return shared_sessions(*_files(model)) if model.tls is not None else None


def _files(model: Connection) -> Any:
    return (model.tls.ca, model.tls.cert, model.tls.key) if model.tls is not None else (None,) * 3


def _counts(sessions: TlsSessions | None) -> tuple[int, int]:
    return (sessions.full_count, sessions.resumed_count) if sessions is not None else (0, 0)
