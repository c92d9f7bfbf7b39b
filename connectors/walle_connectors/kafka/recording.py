"""Recording of a topic into a file of events, in the order of the records' timestamps.

A line is the record's value, with ``device_id`` from its key and ``ingest_time_ms`` from its
timestamp. So a replay of the file gives the same events at the same intervals.
"""

import heapq
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from walle_connectors.file_stream import written
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Record
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.topics import check_topics
from walle_stream.errors import SourceError


def record(model: KafkaSourceModel, file: Path) -> dict[str, Any]:
    """Write the records that a topic has now into a new file; blocks.

    The file appears when all records are written; it is compressed if its name ends in ``.gz``.
    Returns the counts ``events``, ``bytes`` and ``skipped`` (records that are no device's event).

    Raises:
        SourceError: The topic cannot be read, or the file exists or cannot be written.
        TopicError: The topic is missing, or access to it is denied.
        BrokerUnreachableError: No broker answers, or TLS is refused.
    """
    if file.exists() or not file.name:
        raise SourceError(f"{file} exists already: name a new file, or delete it")
    check_topics(model, [NeededTopic(model.topic, "--topic")])
    counts = {"events": 0, "bytes": 0, "skipped": 0}
    with closing(TopicClient(model, named_by="--topic")) as client, written(file) as out:
        bounds = client.bounds(range(client.identity.partition_count))
        parts = [client.records(number, each) for number, each in bounds.items()]
        for each in heapq.merge(*parts, key=attrgetter("timestamp")):
            line = _line(each)
            if line is None:
                counts["skipped"] += 1
            else:
                counts["events"] += 1
                counts["bytes"] += out.write(line)
    return counts


def _line(record_: Record) -> bytes | None:
    try:
        event = msgspec.json.decode(record_.value or b"", type=dict[str, Any])
        device_id = (record_.key or b"").decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not device_id:
        return None
    event |= {"device_id": device_id, "ingest_time_ms": record_.timestamp}
    return msgspec.json.encode(event) + b"\n"
