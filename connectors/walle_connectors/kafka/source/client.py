"""A topic: checks at the start, offsets in it, and our own errors, with either library.

No other module of the source asks a broker for anything but records.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from walle_connectors.kafka.cluster import Place, answered
from walle_connectors.kafka.drivers import driver_problem, open_cluster, open_fetcher
from walle_connectors.kafka.source.fetching import Fetcher, Record
from walle_connectors.kafka.source.group import Told
from walle_connectors.kafka.source.model import KafkaSourceModel, StartTime
from walle_connectors.kafka.source.offsets import Bounds
from walle_connectors.probe import probe_brokers
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceError, TopicError

_LOOK_MS: Final = 5_000  # limit for reading the first records of all partitions
_SAMPLE: Final = 100  # records of a partition whose keys are checked
_POLL_MS: Final = 200
_KEYS_MS: Final = 100
_MOST: Final = 100_000  # records of a poll
_STALL_MS: Final = 60_000  # limit of a wait without progress before the end


type NamedDevice = Callable[[bytes | None], str | None]
"""Returns the device that a value names: empty if the value names none, None if the value cannot
be decoded."""


class TopicClient:
    """Client of one topic. For one thread."""

    def __init__(
        self,
        model: KafkaSourceModel,
        *,
        is_member: bool = False,
        named_by: str = "spec.source.topic",
        metadata_ms: int = 5_000,
    ) -> None:
        """Connect and look for the topic; blocks.

        With ``is_member`` the client may join the group, or ask about it when another client
        joins. Without, it reads all partitions. ``named_by`` is the topic's key in messages. The
        client notices within ``metadata_ms`` that the topic was recreated or has more partitions.

        Raises:
            BrokerUnreachableError: No broker answers in time, or TLS is refused.
            SourceError: The driver is not installed, or the topic is missing.
        """
        problem = driver_problem(model.driver, f"{named_by.rpartition('.')[0]}.driver")
        if problem:
            raise SourceError(problem)
        self._model, self.topic = model, model.topic
        self._fetcher: Fetcher | None = None
        self._fetched = -1  # the partition that the fetcher reads
        probe_brokers(model, model.connect_timeout_ms)
        self.cluster = open_cluster(model)
        try:
            identity = self.cluster.watch(model, metadata_ms, is_member=is_member)
        except BaseException:
            self.close()
            raise
        if identity is None:
            self.close()
            raise SourceError(
                f"there is no topic {self.topic!r} at {', '.join(model.brokers)}, or this client "
                f"has no access to it: create it, correct {named_by}, or allow DESCRIBE"
            )
        self.identity = identity

    def bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Return the current bounds of partitions; blocks.

        Raises:
            SourceError: The brokers refuse the request.
        """
        numbers, start_at = list(partitions), self._model.start_at
        if not numbers:
            return {}
        begins, ends = self._offsets(numbers, Place.BEGIN), self._offsets(numbers, Place.END)
        starts = begins if start_at == "earliest" else ends
        if isinstance(start_at, StartTime):
            # if no record is as late, start with new records
            found = self._offsets(numbers, start_at.timestamp_ms)
            starts = {number: ends[number] if at < 0 else at for number, at in found.items()}
        return {number: Bounds(begins[number], ends[number], starts[number]) for number in numbers}

    def _offsets(self, numbers: Collection[int], at_ms: int) -> dict[int, int]:
        return answered(lambda: self.cluster.offsets(numbers, at_ms))

    def told(self, numbers: Collection[int]) -> dict[int, Told]:
        """Return the group's committed data of partitions; blocks.

        Raises:
            SourceError: The group refuses the request.
        """
        group = self._model.group or ""
        try:
            found = answered(lambda: self.cluster.committed(group, self.topic))
        except TopicError as error:
            raise SourceError(f"topic {self.topic!r}: group {group!r}: {error}") from error
        return {number: Told.read(*found.get(number, (0, ""))) for number in numbers}

    def records(self, number: int, bounds: Bounds) -> Iterator[Record]:
        """Yield a partition's records within bounds, in offset order; blocks.

        A caller may alternate between iterators of several partitions.

        Raises:
            SourceError: Reading failed, or no record came for a minute.
        """
        fetcher = self._fetcher = self._fetcher or open_fetcher(self, self._model, has_headers=True)
        at, moved_ms = bounds.begin, monotonic_ms()
        while at < bounds.end:
            if self._fetched != number:
                self._fetched = number
                fetcher.assign([number])
                fetcher.seek(number, at)
            found = fetcher.poll(_POLL_MS, _MOST)
            if found.gone or found.cut:
                raise SourceError(
                    f"{self.topic}[{number}]: records from offset {at} on were deleted before they "
                    "were read: run again"
                )
            # the last offsets may hold no record
            behind = fetcher.position(number) or at
            if behind > at:
                at, moved_ms = behind, monotonic_ms()
            elif monotonic_ms() - moved_ms > _STALL_MS:
                # a broker may be down for a while, but a waiting user must get an error
                raise SourceError(
                    f"topic {self.topic!r}: no record came for {_STALL_MS // 1000} s before the "
                    "end: make sure that all brokers answer, then run again"
                )
            for records in found.records.values():
                yield from (each for each in records.rows() if each.offset < bounds.end)

    def check_keys(self, named_device: NamedDevice) -> None:
        """Check the keys of each partition's first records; blocks for some seconds at most.

        Raises:
            SourceError: The first record has no key, or no record has its device as key. Records
                of a device may then be in any partition.
        """
        bounds = self.bounds(range(self.identity.partition_count))
        missing = {number: each for number, each in bounds.items() if each.end > each.begin}
        if not missing:
            return
        seen: dict[int, list[Record]] = {number: [] for number in missing}
        fetcher = self._fetcher = self._fetcher or open_fetcher(self, self._model, has_headers=True)
        fetcher.assign(list(missing))
        for number, each in missing.items():
            fetcher.seek(number, each.begin)
        deadline_ms = monotonic_ms() + _LOOK_MS
        # a partition may yield nothing, since all its records may have been compacted away
        while missing and monotonic_ms() < deadline_ms:
            for number, records in fetcher.poll(_KEYS_MS, _SAMPLE).records.items():
                if number not in missing:
                    continue  # fetched before it was paused
                seen[number] += records.rows()
                # a poll may return a few records, too few for a verdict
                is_end = records.offsets[-1] + 1 >= missing[number].end
                is_enough = is_end or len(seen[number]) >= _SAMPLE
                if is_enough or _has_own_key(seen[number], named_device):
                    self._expect_key(number, seen[number], named_device)
                    del missing[number]
                    fetcher.pause(number)
        for number in missing:
            self._expect_key(number, seen[number], named_device)

    def _expect_key(
        self, number: int, records: Sequence[Record], named_device: NamedDevice
    ) -> None:
        keyless = next((each for each in records[:1] if each.key is None), None)
        if keyless is not None:
            raise SourceError(
                f"topic {self.topic!r} is not keyed by device: the record "
                f"{self.topic}[{number}]@{keyless.offset} has no key; write records "
                "with the device id as key, so that a device stays in one partition"
            )
        # undecodable records prove nothing, and single wrong records become dead letters
        others = [(name, each) for each in records if (name := named_device(each.value))]
        if others and not _has_own_key(records, named_device):
            name, first = others[0]
            raise SourceError(
                f"topic {self.topic!r} is not keyed by device: the record "
                f"{self.topic}[{number}]@{first.offset} is of device {name[:64]!r}, "
                f"but its key is {(first.key or b'')[:64]!r}, and so on. Write records with the "
                "device id as key, so that a device stays in one partition, or correct `device` of "
                "the mapping"
            )

    @property
    def is_remade(self) -> bool:
        """Whether the topic was recreated, by the brokers' last metadata; does not block."""
        known, found = self.identity.topic_id, self.cluster.known.topic_id
        return bool(known and found and known != found)

    def accept(self) -> None:
        """Continue with the recreated topic.

        Raises:
            SourceError: The new topic has another number of partitions.
        """
        found, before = self.cluster.known, self.identity.partition_count
        if found.partition_count not in {0, before}:
            raise SourceError(
                f"topic {self.topic!r} was recreated with {found.partition_count} "
                f"partitions instead of {before}: start with a new --data-dir and "
                f"spec.runtime.partitions={found.partition_count}"
            )
        self.identity = msgspec.structs.replace(self.identity, topic_id=found.topic_id)

    def look_again(self) -> None:
        """Refresh the topic's metadata; blocks for some seconds if no broker answers."""
        self.cluster.look_again()

    def expect_count(self) -> None:
        """Refuse a topic that has grown since it was opened; does not block.

        Raises:
            SourceError: The topic has more partitions in the brokers' last metadata.
        """
        if self.cluster.known.partition_count > self.identity.partition_count:
            raise self.grown()

    def grown(self) -> SourceError:
        """Return the error for a topic that got more partitions."""
        return SourceError(
            f"topic {self.topic!r} got more than its {self.identity.partition_count} partitions "
            "while it was read, so devices may have moved: read the old partitions to the end "
            "with spec.source.firstPartitions, then move the devices by walle topics grow"
        )

    def close(self) -> None:
        """Leave the group, if there is one, and disconnect; may be called twice."""
        if self._fetcher is not None:
            self._fetcher.close()
        self.cluster.close()


def _has_own_key(records: Sequence[Record], named_device: NamedDevice) -> bool:
    names = ((each, named_device(each.value)) for each in records)
    return any(name is not None and name.encode() in {b"", each.key} for each, name in names)
