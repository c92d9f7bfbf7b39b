"""A topic through kafka-python's consumer: checks at start, places in it, errors as ours.

The one module of the source that asks a broker anything but for records.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Self

import msgspec

from walle_connectors.brokers import Connection
from walle_connectors.kafka.librdkafka import driver_problem
from walle_connectors.kafka.source.model import KafkaSourceModel, StartTime
from walle_connectors.kafka.source.offsets import Bounds
from walle_connectors.kafka.topic_ids import known_topic_id, look_again, open_consumer
from walle_connectors.probe import probe_brokers
from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError, SourceError
from walle_stream.errors.extras import how_to_install

_ASK_MS: Final = 15_000  # for one question, which several requests may answer
_LOOK_MS: Final = 5_000  # for the first records of all partitions
_SAMPLE: Final = 100  # records of a partition whose keys are looked at
_CLOSE_MS: Final = 2_000
_POLL_MS: Final = 200
_STALL_MS: Final = 60_000  # without a record, or an offset of none, before the end


type NamedDevice = Callable[[bytes | None], str | None]
"""Returns the device that a value names: empty where it leaves it to the key, None where it
cannot be read."""


class TopicIdentity(msgspec.Struct, frozen=True):
    """What tells a topic from another one of its name."""

    partition_count: int
    cluster: str
    topic_id: str
    """Empty where the brokers do not say."""


@contextmanager
def source_errors(name: str) -> Iterator[None]:
    """Turn kafka-python's errors into ours.

    Raises:
        SourceError: For every error of a broker or of the library.
        BrokerUnreachableError: No broker answered.
    """
    from kafka import errors  # noqa: PLC0415 - an extra

    try:
        yield
    except errors.MetadataEmptyBrokerList as error:
        # its text is the whole answer
        raise BrokerUnreachableError(
            f"topic {name!r}: the broker is only starting, it knows of none yet: run again"
        ) from error
    except (errors.KafkaTimeoutError, errors.KafkaConnectionError) as error:
        raise BrokerUnreachableError(
            f"topic {name!r}: the brokers do not answer ({error}): start them, or correct "
            "`tls` and `sasl` (a listener answers nobody without what it asks for, nor a login "
            "that it refuses), and run again"
        ) from error
    except errors.AuthorizationError as error:
        raise SourceError(
            f"topic {name!r}: reading is not allowed ({type(error).__name__}): grant READ and "
            "DESCRIBE on topic and group to this client"
        ) from error
    except _gone_errors() as error:
        raise SourceError(
            f"topic {name!r} is gone: it was deleted while it was read; what was committed is "
            "kept. Make it again and run again: spec.source.onMissingOffset says where to begin"
        ) from error
    except errors.KafkaError as error:
        raise SourceError(
            f"topic {name!r} cannot be read on ({type(error).__name__}: {error}): what was "
            "committed is kept, run again"
        ) from error


def is_gone(error: BaseException) -> bool:
    """Return whether brokers say that a topic is not there, or not the one that was meant."""
    return isinstance(error, _gone_errors())


def _gone_errors() -> tuple[type[Exception], ...]:
    from kafka import errors  # noqa: PLC0415 - an extra

    return (
        errors.UnknownTopicOrPartitionError,
        errors.UnknownTopicIdError,
        errors.InconsistentTopicIdError,
    )


class Told(NamedTuple):
    """What the group keeps of a partition."""

    offset: int = 0
    """Where its owner was; tools show lag by it."""
    generation: int = 0
    """Of its last owner; 0 where there was none."""
    owner: str = ""
    """The last owner, as ``Placement.incarnation`` names it; empty where nobody said."""

    @property
    def metadata(self) -> str:
        """What stands beside the offset."""
        return f"{self.generation} {self.owner}"

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Self:
        """Read what was committed; a tool that resets offsets removes all but the offset."""
        # confluent-kafka 2.16 commits the end of a C string, too, and misses it where it reads
        generation, _, owner = (metadata or "").rstrip("\0").partition(" ")
        return cls(offset, int(generation) if generation.isdecimal() else 0, owner)


class TopicClient:
    """A consumer of one topic. One thread, but for what its rebalance listener does."""

    def __init__(
        self,
        model: KafkaSourceModel,
        *,
        is_member: bool = False,
        named_by: str = "spec.source.topic",
        connection: Connection | None = None,
        metadata_ms: int = 5_000,
    ) -> None:
        """Connect and look for the topic; blocks.

        ``is_member`` is for joining the group, or for asking it where another library joins; else
        it is for having all partitions. ``named_by`` names the topic in messages;
        ``connection`` leads to the brokers, if not the model; within ``metadata_ms`` it is seen
        to be another topic, or to have got more partitions.

        Raises:
            BrokerUnreachableError: No broker answers in time, or TLS is refused.
            SourceError: The driver is not installed, or the topic is not there.
        """
        try:
            from kafka import TopicPartition  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise SourceError(
                f"the source kafka needs the extra of that name ({error}): "
                f"{how_to_install('kafka')}"
            ) from error
        problem = driver_problem(model.driver, f"{named_by.rpartition('.')[0]}.driver")
        if problem:
            raise SourceError(problem)
        self._model, self.topic, self._named_by = model, model.topic, named_by
        self._place: Any = TopicPartition
        connection = connection or model
        probe_brokers(connection, model.connect_timeout_ms)
        with source_errors(model.topic):
            self.consumer, self._cluster = open_consumer(
                **(connection.client_options() | model.consumer_options()),
                **(_member_options(model) if is_member else {}),
                metadata_max_age_ms=metadata_ms,
            )
        try:
            self.identity = self._identify()
        except BaseException:
            self.close()
            raise

    def place(self, partition: int) -> Any:
        """Return what kafka-python calls a partition."""
        return self._place(self.topic, partition)

    def bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Ask what partitions have now; blocks.

        Raises:
            SourceError: They cannot be asked.
        """
        places = [self.place(partition) for partition in partitions]
        if not places:
            return {}
        with source_errors(self.topic):
            begins = self.consumer.beginning_offsets(places, timeout_ms=_ASK_MS)
            ends = self.consumer.end_offsets(places, timeout_ms=_ASK_MS)
            start_at = self._model.start_at
            if isinstance(start_at, StartTime):
                wanted = dict.fromkeys(places, start_at.timestamp_ms)
                found = self.consumer.offsets_for_times(wanted, timeout_ms=_ASK_MS)
                # nothing is as late: begin with what comes
                starts = {
                    place: ends[place] if found[place] is None else found[place].offset
                    for place in places
                }
            else:
                starts = begins if start_at == "earliest" else ends
        return {
            place.partition: Bounds(begins[place], ends[place], starts[place]) for place in places
        }

    def told(self, numbers: Collection[int]) -> dict[int, Told]:
        """Ask what the group keeps of partitions, whichever library is its member; blocks.

        Raises:
            SourceError: It cannot be asked.
        """
        found = {}
        with source_errors(self.topic):
            for number in numbers:
                each = self.consumer.committed(
                    self.place(number), metadata=True, timeout_ms=_ASK_MS
                )
                found[number] = Told() if each is None else Told.read(each.offset, each.metadata)
        return found

    def records(self, number: int, bounds: Bounds) -> Iterator[Any]:
        """Yield what a partition has within bounds, in its order; blocks.

        Those of several partitions may be taken by turns.

        Raises:
            SourceError: It cannot be read on, or nothing comes for a minute.
        """
        place, at, moved_ms = self.place(number), bounds.begin, monotonic_ms()
        while at < bounds.end:
            with source_errors(self.topic):
                if self.consumer.assignment() != {place}:
                    self.consumer.assign([place])
                    self.consumer.seek(place, at)
                # all that the library has in hand: another partition may be next
                found = self.consumer.poll(_POLL_MS, max_records=sys.maxsize).get(place, ())
                # the last offsets may be of no record
                behind = self.consumer.position(place, timeout_ms=0) or at
            if behind > at:
                at, moved_ms = behind, monotonic_ms()
            elif monotonic_ms() - moved_ms > _STALL_MS:
                # a broker may be away for a while, but who waits must hear of it
                raise SourceError(
                    f"topic {self.topic!r}: nothing came for {_STALL_MS // 1000} s, although its "
                    "end is not reached: see that all brokers answer, then run again"
                )
            yield from (each for each in found if each.offset < bounds.end)

    def check_keys(self, named_device: NamedDevice) -> None:
        """Look at the first records of each partition; blocks for some seconds at most.

        Raises:
            SourceError: The first has no key, or none has its device as key, so records of a
                device may be anywhere.
        """
        bounds = self.bounds(range(self.identity.partition_count))
        missing = {
            self.place(number): each for number, each in bounds.items() if each.end > each.begin
        }
        if not missing:
            return
        seen: dict[Any, list[Any]] = {place: [] for place in missing}
        with source_errors(self.topic):
            self.consumer.assign(list(missing))
            for place, each in missing.items():
                self.consumer.seek(place, each.begin)
            deadline_ms = monotonic_ms() + _LOOK_MS
            # partitions whose records were all compacted away have none to show
            while missing and monotonic_ms() < deadline_ms:
                for place, records in self.consumer.poll(100).items():
                    if place not in missing:
                        continue  # fetched before it was paused
                    seen[place] += records
                    # a poll may give a few: one of them alone says nothing of the others
                    is_end = records[-1].offset + 1 >= missing[place].end
                    is_enough = is_end or len(seen[place]) >= _SAMPLE
                    if is_enough or _has_own_key(seen[place], named_device):
                        self._expect_key(seen[place], named_device)
                        del missing[place]
                        self.consumer.pause(place)
            for place in missing:
                self._expect_key(seen[place], named_device)

    def _expect_key(self, records: Sequence[Any], named_device: NamedDevice) -> None:
        keyless = next((each for each in records[:1] if each.key is None), None)
        if keyless is not None:
            raise SourceError(
                f"topic {self.topic!r} is not keyed by device: the record "
                f"{self.topic}[{keyless.partition}]@{keyless.offset} has no key; write records "
                "with the device id as key, so that a device stays in one partition"
            )
        # what cannot be read says nothing of the others; and single ones are dead letters
        others = [(name, each) for each in records if (name := named_device(each.value))]
        if others and not _has_own_key(records, named_device):
            name, first = others[0]
            raise SourceError(
                f"topic {self.topic!r} is not keyed by device: the record "
                f"{self.topic}[{first.partition}]@{first.offset} is of device {name[:64]!r}, "
                f"its key is {(first.key or b'')[:64]!r}, and so on; write records with the device "
                "id as key, so that a device stays in one partition, or correct `device` of the "
                "mapping"
            )

    @property
    def is_remade(self) -> bool:
        """Whether another topic has this name by now, as the brokers said lately; asks nobody."""
        known, found = self.identity.topic_id, self._topic_id()
        return bool(known and found and known != found)

    def accept(self) -> None:
        """Take the topic that has the name now for the one to be read.

        Raises:
            SourceError: It has another number of partitions.
        """
        known = self._cluster.partitions_for_topic(self.topic)
        before = self.identity.partition_count
        if known is not None and len(known) != before:
            raise SourceError(
                f"topic {self.topic!r} was deleted and made again with {len(known)} partitions, "
                f"before it had {before}: start with a new --data-dir and "
                f"spec.runtime.partitions={len(known)}"
            )
        self.identity = msgspec.structs.replace(self.identity, topic_id=self._topic_id())

    def look_again(self) -> None:
        """Ask which topic has the name now; blocks for some seconds where no broker answers."""
        look_again(self._cluster, self.topic)

    def watch(self) -> None:
        """Have the topic asked for now and then, where another library fetches; no wait."""
        self._cluster.add_topic(self.topic)

    def expect_count(self) -> None:
        """Refuse a topic that has got more partitions since it was opened; asks nobody.

        Raises:
            SourceError: It has, as the brokers said lately.
        """
        known = self._cluster.partitions_for_topic(self.topic)
        if known is not None and len(known) > self.identity.partition_count:
            raise self.grown()

    def grown(self) -> SourceError:
        """Return the error of a topic that has got more partitions."""
        return SourceError(
            f"topic {self.topic!r} has got more than its {self.identity.partition_count} "
            "partitions while it was read: devices may be elsewhere now; read what is left with "
            "spec.source.firstPartitions, then walle topics grow moves them"
        )

    def _identify(self) -> TopicIdentity:
        with source_errors(self.topic):
            numbers = self.consumer.partitions_for_topic(self.topic)
        if not numbers:
            raise SourceError(
                f"there is no topic {self.topic!r} at {', '.join(self._model.brokers)}, or this "
                f"client may not see it: create it, correct {self._named_by}, or allow DESCRIBE"
            )
        return TopicIdentity(len(numbers), self._cluster.cluster_id or "", self._topic_id())

    def _topic_id(self) -> str:
        return known_topic_id(self._cluster, self.topic)

    def close(self) -> None:
        """Leave the group, if there is one, and disconnect; may be called twice."""
        from kafka.errors import KafkaError  # noqa: PLC0415 - an extra

        with suppress(KafkaError):  # else the group learns of it by the end of the session
            self.consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)


def _has_own_key(records: Sequence[Any], named_device: NamedDevice) -> bool:
    names = ((each, named_device(each.value)) for each in records)
    return any(name is not None and name.encode() in {b"", each.key} for each, name in names)


def _member_options(model: KafkaSourceModel) -> dict[str, Any]:
    from kafka.coordinator.assignors.cooperative_sticky import (  # noqa: PLC0415 - an extra
        CooperativeStickyAssignor,
    )

    return {
        "group_id": model.group,
        "max_poll_interval_ms": model.poll_interval_ms,
        "session_timeout_ms": model.session_timeout_ms,
        "heartbeat_interval_ms": min(3_000, model.session_timeout_ms // 3),
        "partition_assignment_strategy": [CooperativeStickyAssignor],
    }
