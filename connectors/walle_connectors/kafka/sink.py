"""A sink that writes merged features to a topic, in the tunnel's format, in transactions.

Each lane has a transactional producer of its own, so a lane's former owner cannot write any more.
A transaction holds records and the place after them, stored as the offset of a group. The place is
read before the lane's first record, so no feature is written twice. Consumers read with
``isolation.level=read_committed``.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import dropwhile
from threading import Thread
from typing import Final

from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.drivers import open_lane
from walle_connectors.kafka.producing import TopicRecord
from walle_connectors.kafka.sink_lane import SinkLane
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_connectors.kafka.topics import check_topics
from walle_connectors.kafka.tunnel_records import topic_record
from walle_stream.errors import SinkError, WalleError
from walle_stream.ports import MergedFeature, Written, first_part
from walle_stream.wire.record import RecordEnvelope

_MOST_S: Final = 20.0  # limit of a transaction


class KafkaSink:
    """Implements ``ports.FeatureSink``."""

    pause_s = 0.0

    def __init__(self, model: KafkaSinkModel, identity: str) -> None:
        """Prepare the sink without connecting; ``identity`` names groups and transactions."""
        self._model, self._identity = model, identity
        self._lanes: dict[str, SinkLane] = {}

    def write(self, lane: str, features: Iterator[MergedFeature]) -> Written:
        """Write up to 1,000 records in one transaction; see ``FeatureSink.write``.

        Raises:
            SinkError: The transaction failed, and none of its records counts as written.
        """
        try:
            opened = self._lanes.get(lane) or self._open(lane)
            place = opened.place
            batch = first_part(dropwhile(lambda each: each.number < place, features))
            if batch:
                place = batch[-1].number + 1
                self._write(opened, [self._record(each) for each in batch], place)
        except SinkError:
            self._drop(lane)
            raise
        except WalleError as error:
            self._drop(lane)
            raise SinkError(f"topic {self._model.topic!r}: {error}") from error
        return Written(place, place)

    def close(self) -> None:
        """Drop records in flight; see ``FeatureSink.close``."""
        for lane in list(self._lanes):
            self._drop(lane)

    def _open(self, lane: str) -> SinkLane:
        check_topics(self._model, [NeededTopic(self._model.topic, "spec.sinks")])
        opened = self._lanes[lane] = open_lane(self._model, f"{self._identity}-{lane}")
        return opened

    def _write(self, lane: SinkLane, records: Sequence[TopicRecord], place: int) -> None:
        # If a broker dies during a transaction, neither library returns before the broker is back,
        # and librdkafka (2.16) not even then. The call is left to its thread: the lane's next
        # client fences it and then reads the place.
        outcome: Future[None] = Future()

        def write() -> None:
            try:
                lane.write(records, place)
                outcome.set_result(None)
            except BaseException as error:  # noqa: BLE001 - raised again
                outcome.set_exception(error)

        Thread(target=write, name="walle-sink-lane", daemon=True).start()
        try:
            outcome.result(_MOST_S)
        except TimeoutError:
            raise SinkError(
                f"topic {self._model.topic!r}: no answer in {_MOST_S:g} s; a new client continues"
            ) from None

    def _record(self, feature: MergedFeature) -> TopicRecord:
        envelope = RecordEnvelope(
            device_id=feature.device_id,
            incarnation=feature.incarnation,
            partition=0,
            epoch=0,
            sequence_number=feature.sequence_number,
            task=feature.task,
            task_version=feature.task_version,
            event_time_ms=feature.event_time_ms,
            encoding=feature.encoding,
        )
        return topic_record(envelope, feature.feature, self._model.format)

    def _drop(self, lane: str) -> None:
        opened = self._lanes.pop(lane, None)
        if opened is not None:
            opened.close()
