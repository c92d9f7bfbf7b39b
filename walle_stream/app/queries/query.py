"""Queries of a data directory from outside, even while a run writes it.

Lines are bytes of JSON objects in a fixed order, so that equal contents are equal bytes. Tests, the
chaos campaign and ``walle state export`` compare them. Lines have the values of scripts unchanged,
so each value is checked first. A row with a malformed value is left out; an error names it after
all other rows.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from walle_stream.actors.rows.message_rows import decode_waiting
from walle_stream.cloud.partition_table import features_in
from walle_stream.errors import MalformedRowError, StoreMissingError
from walle_stream.store import keys
from walle_stream.store.datadir import DataDir
from walle_stream.store.growing import tables_in
from walle_stream.store.keyspace import KeySpace
from walle_stream.store.partition import PartitionStore
from walle_stream.store.rocks import open_rocks
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.frame import FeatureRecord
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters, PartitionHead, RowDecoder
from walle_stream.wire.strict_json import object_problem, value_problem

_decode_any = RowDecoder(Any, "any").decode
_decode_call = RowDecoder(tuple[str, CloudCall], "call").decode
_decode_row = RowDecoder(list[Any], "device").decode
_decode_feature = RowDecoder(tuple[str, bytes, bytes], "feature").decode
_decode_head = RowDecoder(PartitionHead, "head").decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class RunState(msgspec.Struct, frozen=True):
    """Progress of the runs over a data directory."""

    commits: int
    is_complete: bool
    """Whether every partition has passed the source's natural end."""
    counters: Counters = msgspec.field(default_factory=Counters)
    """Counters of all partitions."""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    """Ledger of all partitions."""
    heads: dict[int, PartitionHead] = {}
    """Heads of the partitions with a commit, by number."""


def features_lines(
    data_dir: Path, device_id: str | None = None, task: str | None = None
) -> Iterator[bytes]:
    """Iterate over the cloud side's features by partition, device and sequence number.

    If another program has the cloud side, iterate over the devices' own features, by partition,
    device, task and sequence number. In the directory of a ``walle cloud`` worker, iterate over the
    latest features, which its tables keep.

    Yields:
        ``{"device_id", "task", "task_version", "sequence_number", "feature"}``.

    Raises:
        StoreMissingError: There is no such data directory.
        MalformedRowError: Features that are no JSON object were left out; raised at the end.
    """
    yield from _good(data_dir, map(_line_of, _feature_rows(data_dir, device_id, task)))


def features_records(data_dir: Path, task: str | None = None) -> Iterator[FeatureRecord]:
    """Iterate over features as ``features_lines`` does.

    Raises:
        StoreMissingError: There is no such data directory.
        MalformedRowError: Features that are no JSON object were left out; raised at the end.
    """
    yield from _good(data_dir, _feature_rows(data_dir, None, task))


def run_state(data_dir: Path) -> RunState:
    """Return the progress of the runs over a data directory.

    Raises:
        StoreMissingError: There is no data directory, or it is not complete yet.
    """
    counters, ledger, is_complete = Counters(), Ledger(), True
    heads: dict[int, PartitionHead] = {}
    for number, store in open_partitions(data_dir):
        head = store.get(keys.HEAD_KEY)
        if head is None:
            is_complete = False
            continue
        decoded = heads[number] = _decode_head(head)
        counters.add(decoded.counters)
        ledger = ledger.plus(decoded.ledger)
        is_complete = is_complete and decoded.is_ended
    return RunState(counters.commits, is_complete, counters, ledger, heads)


def canonical_state(data_dir: Path) -> Iterator[bytes]:
    """Iterate over the state that must be equal in every run over the same source.

    It has devices with their cursors, open pages, sequence numbers and task state; the cloud's
    features; the counters that do not depend on batches. The lines are JSON in a fixed order.

    Raises:
        MalformedRowError: Rows were left out; raised at the end.
    """
    yield from _good(data_dir, _all_rows(data_dir, is_canonical=True))


def full_state(data_dir: Path) -> Iterator[bytes]:
    """Iterate over all rows of the partitions, for people: JSON lines."""
    yield from _good(data_dir, _all_rows(data_dir, is_canonical=False))


class _BadRow(NamedTuple):
    what: str
    problem: str
    device_id: str
    task: str = ""
    number: int = 0


type _Rows = Iterator[bytes | _BadRow]


def _good[T](data_dir: Path, rows: Iterator[T | _BadRow]) -> Iterator[T]:
    first: _BadRow | None = None
    count = 0
    for row in rows:
        if not isinstance(row, _BadRow):
            yield row
            continue
        count += 1
        first = first or row
    if first is None:
        return
    partition = _partition_with(data_dir, first.device_id)
    of = f"partition {partition}, device {first.device_id!r}"
    of += f", task {first.task!r}" if first.task else ""
    of += f", number {first.number}" if first.number else ""
    raise MalformedRowError(
        f"{data_dir}: {of}: {first.what} is not well-formed: {first.problem}: left out"
        + (f", and {count - 1:,} more such rows" if count > 1 else ""),
        partition,
        *first[2:],
        count,
    )


def _partition_with(data_dir: Path, device_id: str) -> int:
    base, last = keys.DeviceKeys(device_id).base, -1
    if tables_in(data_dir):
        return last
    for number, store in open_partitions(data_dir):
        if any(True for _ in store.scan(base)):
            last = number
    return last


def _all_rows(data_dir: Path, *, is_canonical: bool) -> _Rows:
    yield from _state_lines(data_dir, is_canonical=is_canonical)
    yield from map(_line_of, _feature_rows(data_dir, None, None))


def _feature_rows(
    data_dir: Path, device_id: str | None, task: str | None
) -> Iterator[FeatureRecord | _BadRow]:
    tables = tables_in(data_dir)
    if tables or DataDir.open_read_only(data_dir).meta.has_cloud:
        spaces = _worker_tables(tables) if tables else _own_tables(data_dir)
        records = chain.from_iterable(features_in(space, device_id) for space in spaces)
    else:
        records = chain(_kept_features(data_dir, device_id))
    yield from (_checked(record) for record in records if task in {None, record.task})


def _own_tables(data_dir: Path) -> Iterator[KeySpace]:
    """Iterate over the cloud sides of partitions, each open until the next."""
    for _, store in open_partitions(data_dir):
        yield store.space(keys.CLOUD_PREFIX)


def _worker_tables(paths: Iterable[Path]) -> Iterator[KeySpace]:
    for path in paths:
        with closing(KeySpace(open_rocks(path, read_only=True), path)) as space:
            yield space


# fields and counters that depend on batches, kills and partitioning are excluded
_CANONICAL_FIELDS = 6  # of a device row
_TASK_SET_FIELD = 7
_CHANCE_COUNTERS = (
    "commits",
    "uplink_bytes",
    "uplink_frames",
    "dropped_frames",
    "dropped_features",
    "messages",
    "dropped_messages",
)

# of the ledger; the rest are sizes of frames, and so depend on batches
_MADE = ("features", "calls", "feature_bytes", "encoding_bytes", "question_bytes")


def _state_lines(data_dir: Path, *, is_canonical: bool) -> _Rows:
    for number, store in open_partitions(data_dir):
        row = store.get(keys.HEAD_KEY)
        if row is not None:
            head = msgspec.to_builtins(_decode_head(row))
            if is_canonical:
                head = {
                    "counters": head["counters"],
                    "watermark_ms": head["watermark_ms"],
                    "made": _made_by_task(head["ledger"]["tasks"]),
                    # excludes the first failure, and runs refused by a quarantine
                    "next_message": head["next_message"],
                    "runs": {task: counts[:2] for task, counts in head["tasks"].items()},
                }
                for name in _CHANCE_COUNTERS:
                    del head["counters"][name]
            yield _encode({"partition": number, **head})
        for key, value in store.scan(keys.DEADLINE_PREFIX):
            yield _encode({"deadline": key[1:].decode(), "ms": int.from_bytes(value, "big")})
        for _, value in store.scan(keys.CALL_PREFIX):
            name, call = _decode_call(value)
            waits = [call.task, name, call.service]
            yield _encode({"device_id": call.device_id, "call": call.number, "waits": waits})
        for key, value in store.scan(keys.MESSAGE_PREFIX):
            device_id, _, *sender, payload = decode_waiting(value)
            message = {"message": keys.parse_number(key), "from": sender}
            yield _encode({"device_id": device_id, **message, "waits": msgspec.Raw(payload)})
        for key, value in store.scan(keys.DEVICE_PREFIX):
            yield _device_line(key, value)
        letters = [value for _, value in store.scan(keys.DEAD_LETTER_PREFIX)]
        for letter in sorted(letters):
            yield b'{"dead_letter":' + letter + b"}"


def _made_by_task(tasks: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {task: {name: size[name] for name in _MADE} for task, size in tasks.items()}


def _device_line(key: bytes, value: bytes) -> bytes | _BadRow:
    device_id, table, rest = keys.parse_device(key)
    line: dict[str, Any] = {"device_id": device_id}
    problem, what = None, ""
    if table == keys.TABLE_DEVICE:
        # excludes the number of the batch that wrote it, which depends on chance
        row = _decode_row(value)
        line["row"] = row[:_CANONICAL_FIELDS]
        if any(row[_TASK_SET_FIELD:]):
            line["task_set"] = row[_TASK_SET_FIELD]
    elif table == keys.TABLE_PAGE:
        ordinal, index = keys.parse_page_row(key)
        line |= {"page": ordinal, "index": index, "event": _decode_any(value)}
    elif table == keys.TABLE_STATE:
        task, name = keys.parse_task(rest)
        problem, what = value_problem(value), f"the state of the key {name.decode()!r}"
        line |= {"task": task, "key": name.decode(), "value": msgspec.Raw(value)}
    elif table == keys.TABLE_FEATURE:
        task, number = keys.parse_task(rest)
        version, feature, encoding = _decode_feature(value)
        problem, what = object_problem(feature), "a feature"
        line |= {
            "task": task,
            "task_version": version,
            "sequence_number": int.from_bytes(number, "big"),
            "feature": msgspec.Raw(feature),
            "encoding": encoding,
        }
    else:
        task, rest = keys.parse_task(rest)
        layout, key_of_state = int.from_bytes(rest[:4], "big"), rest[4:].decode()
        problem, what = value_problem(value), f"the kept state of the key {key_of_state!r}"
        line |= {"task": task, "kept": layout, "key": key_of_state, "value": msgspec.Raw(value)}
    if problem is not None:
        number = line.get("sequence_number", 0)
        return _BadRow(what, problem, device_id, line.get("task", ""), number)
    return _encode(line)


def _kept_features(data_dir: Path, device_id: str | None) -> Iterator[FeatureRecord]:
    prefix = keys.DEVICE_PREFIX if device_id is None else keys.DeviceKeys(device_id).base
    for _, store in open_partitions(data_dir):
        for key, value in store.scan(prefix):
            owner, table, rest = keys.parse_device(key)
            if table == keys.TABLE_FEATURE:
                task, number = keys.parse_task(rest)
                version, feature, encoding = _decode_feature(value)
                sequence_number = int.from_bytes(number, "big")
                yield FeatureRecord(owner, task, version, sequence_number, feature, encoding)


def _checked(record: FeatureRecord) -> FeatureRecord | _BadRow:
    problem = object_problem(record.feature)
    if problem is None:
        return record
    number = record.sequence_number
    return _BadRow("a feature", problem, record.device_id, record.task, number)


def _line_of(record: FeatureRecord | _BadRow) -> bytes | _BadRow:
    if isinstance(record, _BadRow):
        return record
    return msgspec.json.encode(
        {
            "device_id": record.device_id,
            "task": record.task,
            "task_version": record.task_version,
            "sequence_number": record.sequence_number,
            "feature": msgspec.Raw(record.feature),
        }
    )


def open_partitions(data_dir: Path) -> Iterator[tuple[int, PartitionStore]]:
    """Iterate over (number, database) of partitions, each open until the next is requested."""
    with DataDir.open_read_only(data_dir) as opened:
        opened.check_parts()
        for number in range(opened.meta.partition_count):
            try:
                store = PartitionStore.open(opened.partition_path(number), read_only=True)
            except StoreMissingError:
                continue  # a run was killed before it opened this partition
            with store:
                yield number, store
