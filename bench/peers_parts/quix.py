"""Quix Streams: a stateful ``StreamingDataFrame`` over RocksDB, without a broker.

Quix has no local mode of its own: the loop below is ``Application._run_dataframe``
without Kafka. Traffic with the broker (consumer, producer, changelog) costs nothing here, which is
in its favour.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from quixstreams.context import copy_context, set_message_context
from quixstreams.dataframe import DataFrameRegistry, StreamingDataFrame
from quixstreams.models import MessageContext, Topic, TopicConfig, TopicManager
from quixstreams.processing import ProcessingContext
from quixstreams.sinks import SinkManager
from quixstreams.state import State, StateStoreManager

from peers_parts.shop_features import describe
from peers_parts.shop_job import Page, Visitor, Watermarks, decode_event
from walle_stream.events import Event

_COMMIT_INTERVAL_S = 5.0  # the application's default
_END = "end"


class _NoBroker:
    # producer and consumer of a checkpoint: nothing is sent, nothing is fetched
    offsets: dict[Any, Any] = {}  # noqa: RUF012 - stays empty

    def flush(self, *_: Any, **__: Any) -> int:
        return 0

    def commit(self, **_: Any) -> list[Any]:
        return []


def _take(value: tuple[Event, int], state: State) -> list[bytes]:
    # timers do not exist here: an event that ends the input closes what is open
    event, watermark_ms = value
    exported = state.get("visitor")
    visitor = Visitor() if exported is None else Visitor.restore(exported)
    pages = visitor.finish() if event.id == _END else visitor.accept(event, watermark_ms)
    state.set("visitor", visitor.export())
    return lines_of(event.device_id, pages, state)


def lines_of(device_id: str, pages: list[Page], state: State) -> list[bytes]:
    """Count the items' pages among some that ended, and make their output lines."""
    lines = []
    for page in pages:
        if page.page_id == "item":
            item = page.rows[0][2]["item"]
            views = state.get(f"views:{item}", 0) + 1
            state.set(f"views:{item}", views)
            total = state.get("total", 0) + 1
            state.set("total", total)
            lines.append(describe(device_id, page, views, total))
    return lines


class _Local:
    # the application's loop over one partition

    def __init__(self, folder: Path, out: BinaryIO) -> None:
        registry, broker, watermarks = DataFrameRegistry(), _NoBroker(), Watermarks()
        self._manager = StateStoreManager(group_id="bench", state_dir=folder)
        self._manager.init()
        self._processing = ProcessingContext(
            commit_interval=_COMMIT_INTERVAL_S,
            commit_every=0,
            producer=broker,
            consumer=broker,
            state_manager=self._manager,
            exactly_once=False,
            sink_manager=SinkManager(),
            dataframe_registry=registry,
        )
        # what a broker would say of it; the state's changelog would be made alike
        described = TopicConfig(1, 1, {"retention.ms": "-1", "retention.bytes": "-1"})
        topic = Topic("events", create_config=described)
        topic.broker_config = described
        self._topic = topic.name
        frame = StreamingDataFrame(
            topic,
            topic_manager=TopicManager(topic_admin=None, consumer_group="bench"),
            processing_context=self._processing,
            registry=registry,
        )
        registry.register_root(frame)
        frame = frame.apply(decode_event)
        frame = frame.apply(lambda event: (event, watermarks.of(event)))
        frame = frame.apply(_take, stateful=True, expand=True)
        frame.update(lambda line: out.write(line + b"\n"))
        self._composed = registry.compose_all()[self._topic]
        self._manager.on_partition_assign(frame.stream_id, 0, {})
        self._processing.init_checkpoint()
        self._offset = 0

    def process(self, key: bytes, value: bytes) -> None:
        context = copy_context()
        message = MessageContext(self._topic, 0, self._offset, len(value))
        context.run(set_message_context, message)
        context.run(self._composed, value, key, 0, None)
        self._processing.store_offset(topic=self._topic, partition=0, offset=self._offset)
        self._processing.commit_checkpoint()
        self._offset += 1

    def close(self) -> None:
        self._processing.commit_checkpoint(force=True)
        self._manager.close()


def run(source: Path, out: Path) -> None:
    """Make the features of a file of events."""
    devices: dict[bytes, None] = {}
    with (
        tempfile.TemporaryDirectory(prefix="walle-bench-") as folder,
        source.open("rb") as file,
        out.open("wb") as made,
    ):
        local = _Local(Path(folder), made)
        for line in file:
            key = _key(line)
            devices[key] = None
            local.process(key, line)
        for key in devices:
            local.process(key, _end_of(key))
        local.close()


def _key(line: bytes) -> bytes:
    # a record of Kafka has its key beside it: finding it must cost next to nothing
    begin = line.index(b'"device_id":"') + 13
    return line[begin : line.index(b'"', begin)]


def _end_of(key: bytes) -> bytes:
    rest = b'"kind":"click","page_id":"","page_instance":"","event_time_ms":0,"ingest_time_ms":0}'
    return b'{"device_id":"%s","id":"%s",%s' % (key, _END.encode(), rest)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
