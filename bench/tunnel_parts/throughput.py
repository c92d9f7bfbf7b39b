"""How many records go up, by codec, by records of a frame and by linger; one device process."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, Final

from vm_parts.measuring import quartiles

from tunnel_parts.ends import bare_producer, look_for
from tunnel_parts.network import Network, Reach, open_network, topic_bytes
from tunnel_parts.payload import DEVICE, feature, frame
from walle_connectors.kafka.tunnel import KafkaUplink

RECORD_BYTES: Final = 1_300
"""The paper's feature of a page view."""

_HELD_BYTES: Final = 2 * 2**20
_WARM_UP: Final = 50
_PARTITION: Final = 0
_LOOK_S: Final = 0.005  # asking costs CPU time, too

type _Spent = tuple[float, float, int]  # wall and CPU seconds, the topic's bytes before


def measure_throughput(
    reach: Reach, batches: list[int], records: int, seed: int
) -> list[dict[str, Any]]:
    """Send records as fast as they are taken, ours in frames, then bare.

    Args:
        reach: Where the broker is, codec and linger.
        batches: Records of a frame, one measurement each.
        records: How many.
        seed: Of the contents.

    Returns:
        A row each: ``who``, ``codec``, ``batch`` (0 for bare), ``records_per_s``,
        ``records_per_cpu_s`` of this process, ``bytes_per_record`` in the broker.
    """
    rng = random.Random(seed)
    values = [feature(rng, RECORD_BYTES) for _ in range(records)]
    rows = [
        {"who": "ours", "codec": reach.codec, "batch": batch}
        | _flat_out(reach, partial(_send_frames, values=values, batch=batch), records)
        for batch in batches
    ]
    bare = _flat_out(reach, partial(_send_bare, values=values), records)
    return [*rows, {"who": "bare", "codec": reach.codec, "batch": 0} | bare]


def measure_linger(reach: Reach, records: int, samples: int, seed: int) -> dict[str, Any]:
    """Send frames of one record, flat out, and then one after the other's acknowledgement.

    Args:
        reach: Where the broker is, codec and linger.
        records: Flat out.
        samples: One after the other.
        seed: Of the contents.

    Returns:
        As a row of ``measure_throughput``, and ``linger_ms``, and quartiles as ``ms``.
    """
    rng = random.Random(seed)
    values = [feature(rng, RECORD_BYTES) for _ in range(records)]
    found = _flat_out(reach, partial(_send_frames, values=values, batch=1), records)
    made = []
    with open_network(reach) as network, closing(_uplink(network)) as uplink:
        for number in range(1, samples + _WARM_UP + 1):
            data = frame(number, number, [feature(rng, RECORD_BYTES)])
            begin_s = time.perf_counter()
            uplink.send([(_PARTITION, number, data)])
            look_for(lambda: list(uplink.acks(_PARTITION)), "an acknowledgement")
            made.append((time.perf_counter() - begin_s) * 1e3)
    return found | {"linger_ms": reach.linger_ms, "ms": quartiles(made[_WARM_UP:])}


def _flat_out(reach: Reach, send: Callable[[Network], _Spent], records: int) -> dict[str, Any]:
    with open_network(reach) as network:
        wall_s, cpu_s, before = send(network)
        stored = topic_bytes(network.cloud) - before
    return {
        "records": records,
        "records_per_s": round(records / wall_s, 1),
        "records_per_cpu_s": round(records / cpu_s, 1),
        "bytes_per_record": round(stored / records, 1),
    }


def _uplink(network: Network) -> KafkaUplink:
    return KafkaUplink(network.device, _HELD_BYTES)


def _send_frames(network: Network, values: list[bytes], batch: int) -> _Spent:
    starts = range(0, len(values), batch)
    # made before: the outbox has them
    frames = [
        frame(number, _WARM_UP + start + 1, values[start : start + batch])
        for number, start in enumerate(starts, _WARM_UP + 1)
    ]
    acked: list[int] = []
    uplink = _uplink(network)

    def is_acked(count: int) -> bool:
        acked.extend(uplink.acks(_PARTITION))
        return len(acked) == count

    try:
        for number in range(1, _WARM_UP + 1):
            uplink.send([(_PARTITION, number, frame(number, number, values[:1]))])
        look_for(lambda: is_acked(_WARM_UP), "acknowledgements")
        acked.clear()
        before = topic_bytes(network.cloud)
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        for number, data in enumerate(frames, _WARM_UP + 1):
            uplink.send([(_PARTITION, number, data)])
        look_for(lambda: is_acked(len(frames)), "acknowledgements", _LOOK_S)
        return time.perf_counter() - begin_s, time.process_time() - cpu_s, before
    finally:
        uplink.close()


def _send_bare(network: Network, values: list[bytes]) -> _Spent:
    producer = bare_producer(network.device)
    topic, key = network.device.topic, DEVICE.encode()
    try:
        for _ in range(_WARM_UP):
            producer.send(topic, values[0], key, partition=_PARTITION)
        producer.flush(30)
        before = topic_bytes(network.cloud)
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        for value in values:
            producer.send(topic, value, key, partition=_PARTITION)
        producer.flush(30)
        return time.perf_counter() - begin_s, time.process_time() - cpu_s, before
    finally:
        producer.close(timeout=5)
