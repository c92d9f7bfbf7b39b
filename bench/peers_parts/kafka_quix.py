"""Quix Streams over Kafka: a stateful ``StreamingDataFrame``, at least once.

State in RocksDB with a changelog topic, a checkpoint every five seconds (offsets, state
and producer together): its defaults, but that nothing lingers where latencies are measured.
"""

from collections.abc import Callable

from quixstreams import Application
from quixstreams.state import State

from peers_parts.kafka_job import PARTITIONS, KafkaJob, told
from peers_parts.quix import lines_of
from peers_parts.shop_job import Visitor, Watermarks, decode_event
from walle_stream.events import Event


def _take(value: tuple[Event, int], state: State) -> list[bytes]:
    event, watermark_ms = value
    exported = state.get("visitor")
    visitor = Visitor() if exported is None else Visitor.restore(exported)
    pages = visitor.accept(event, watermark_ms)
    state.set("visitor", visitor.export())
    return lines_of(event.device_id, pages, state)


def _counted(job: KafkaJob, stop: Callable[[], None]) -> Callable[[bytes], Event]:
    left = job.events

    def decode(value: bytes) -> Event:
        nonlocal left
        left -= 1
        if left == 0:
            stop()  # behind this event
        return decode_event(value)

    return decode


def run(job: KafkaJob) -> None:
    """Make the features of a topic of events."""
    app = Application(
        job.broker,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        state_dir=job.folder,
        producer_extra_config={"linger.ms": 0} if job.is_paced else None,
        loglevel="WARNING",
    )
    source = app.topic(job.source, key_deserializer="str", value_deserializer="bytes")
    out = app.topic(job.out, key_serializer="str", value_serializer="bytes")
    watermarks = Watermarks(PARTITIONS)
    frame = app.dataframe(source)
    frame = frame.apply(_counted(job, app.stop))
    frame = frame.apply(lambda event: (event, watermarks.of(event)))
    frame = frame.apply(_take, stateful=True, expand=True)
    frame.to_topic(out)
    app.run()


if __name__ == "__main__":
    run(told())
