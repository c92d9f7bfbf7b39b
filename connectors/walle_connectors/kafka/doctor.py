"""The checks of ``walle doctor``: one line each, without changes to the cluster.

The check of the broker's clock is the exception: it creates a topic and deletes it again. No answer
of Kafka's protocol tells the time, but a record's append time does.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from walle_connectors.brokers import Connection
from walle_connectors.certificates import certificate_end
from walle_connectors.kafka.cluster import Cluster, FoundTopic, NeededTopic
from walle_connectors.kafka.drivers import open_cluster
from walle_connectors.kafka.pipeline import KafkaPart
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.topics import BATCH_OVERHEAD_BYTES, find_topics, topic_problem
from walle_connectors.kafka.writing import TopicWriter
from walle_connectors.probe import probe_brokers
from walle_stream.clock import wall_ms
from walle_stream.errors import (
    BrokerUnreachableError,
    StoreError,
    TopicError,
    TunnelError,
    WalleError,
)
from walle_stream.store.objects import open_objects

EXPIRES_SOON: Final = timedelta(days=30)

CLOCK_MAX_MS: Final = 1_000
"""Largest difference between our clock and a broker's."""

_RETENTION_MIN_MS: Final = 24 * 3_600_000
_SAFE_REPLICAS: Final = 2
_RECORD_BYTES: Final = 1_024

type Level = Literal["ok", "warn", "fail"]
"""Result of a check; ``fail`` means that a run would fail or lose data."""


class Check(msgspec.Struct, frozen=True):
    """A check and its result."""

    level: Level
    what: str
    """``brokers``, ``tls``, ``clock``, ``topic NAME``, ..."""
    text: str
    """One line; for a ``fail`` it says what to do."""
    exit_code: int = 0


def examine(parts: Sequence[KafkaPart]) -> Iterator[Check]:
    """Yield each check when it is done; blocks. A shared connection is checked once."""
    seen: dict[str, bool] = {}
    for part in parts:
        given = part.connection
        key = repr((given.brokers, given.tls, given.sasl, given.client_id, given.driver))
        if key not in seen:
            checks = list(_connection(part.connection))
            seen[key] = all(check.exit_code == 0 for check in checks)
            yield from checks
        if seen[key]:
            yield from _topics(part)


def examine_store(place: str, options: Mapping[str, str]) -> Check:
    """Write, list and delete an object of a place for snapshots; blocks."""
    folder, what = "walle-doctor", "object store"
    name = f"{folder}/{secrets.token_hex(6)}"
    try:
        objects = open_objects(place, options)
        objects.create(name, b"")
        is_listed = name in objects.listed(folder)
        objects.delete([name])
    except WalleError as error:
        return Check("fail", what, str(error), error.exit_code)
    if not is_listed:
        text = f"{place} does not list a new object at once: choose a store that does"
        return Check("fail", what, text, StoreError.exit_code)
    return Check("ok", what, f"{place}: an object was written, listed and deleted")


def _connection(connection: Connection) -> Iterator[Check]:
    addresses = ", ".join(connection.brokers)
    tls = connection.tls
    for name, path in (("ca", tls.ca), ("cert", tls.cert)) if tls else ():
        if path is not None:
            yield _file(f"tls.{name}", lambda path=path: certificate_end(path))  # type: ignore[misc]
    try:
        ends = probe_brokers(connection)
        cluster = open_cluster(connection)
        count = cluster.brokers()
    except WalleError as error:
        yield Check("fail", "brokers", str(error), error.exit_code)
        return
    yield Check("ok", "brokers", f"{addresses}: {count} in the cluster")
    if ends is not None:
        yield _expiry("tls", "the broker's certificate", ends)
    elif tls is None:
        yield Check("warn", "tls", "traffic is not encrypted: set `tls`")
    with closing(cluster):
        yield _clock(connection, cluster)


def _file(what: str, read: Callable[[], datetime]) -> Check:
    try:
        return _expiry(what, "it", read())
    except (OSError, ValueError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        text = f"{reason}: correct `{what}`"
        return Check("fail", what, text, BrokerUnreachableError.exit_code)


def _expiry(what: str, whose: str, ends: datetime) -> Check:
    left = ends - datetime.now(UTC)
    day = ends.date().isoformat()
    if left <= timedelta():
        text = f"{whose} has expired on {day}: make a new one"
        return Check("fail", what, text, BrokerUnreachableError.exit_code)
    if left <= EXPIRES_SOON:
        return Check("warn", what, f"{whose} expires on {day}, in {left.days} days: make a new one")
    return Check("ok", what, f"{whose} is valid until {day}")


def _clock(connection: Connection, cluster: Cluster) -> Check:
    name = f"walle-doctor-{secrets.token_hex(6)}"
    try:
        try:
            cluster.create(name, 1, 1, {"message.timestamp.type": "LogAppendTime"})
            before_ms, broker_ms, after_ms = _append(connection, name)
        except BaseException:  # even on a signal: the topic may exist already
            with suppress(WalleError):
                cluster.delete(name)
            raise
        try:
            cluster.delete(name)
        except WalleError as error:
            text = f"topic {name}, created for this check, cannot be deleted ({error})"
            return Check("warn", "clock", f"{text}: delete it")
    except WalleError as error:
        return Check("warn", "clock", f"not checked, as its topic cannot be created: {error}")
    # the append happened between our two readings
    ahead_ms = max(broker_ms - after_ms, before_ms - broker_ms, 0)
    if ahead_ms > CLOCK_MAX_MS:
        text = f"the broker's clock and ours are {ahead_ms} ms apart: set both by NTP"
        return Check("fail", "clock", text, TunnelError.exit_code)
    return Check(
        "ok", "clock", f"the broker's and ours are at most {after_ms - before_ms} ms apart"
    )


def _append(connection: Connection, name: str) -> tuple[int, int, int]:
    writer = TopicWriter(connection, name, max_bytes=_RECORD_BYTES)
    try:
        writer.write(None, b"")
        writer.flush()  # the first record takes longer than later ones
        before_ms = wall_ms()
        writer.write(None, b"")
        writer.flush()
        after_ms = wall_ms()
    finally:
        writer.close()
    with closing(TopicClient(KafkaSourceModel.of(connection, name))) as client:
        *_, last = client.records(0, client.bounds([0])[0])
    return before_ms, last.timestamp, after_ms


def _topics(part: KafkaPart) -> Iterator[Check]:
    try:
        found = find_topics(part.connection, part.topics, has_settings=True)
    except WalleError as error:
        yield Check("fail", "topics", str(error), error.exit_code)
        return
    for needed in part.topics:
        topic = found.get(needed.name)
        problem = topic_problem(needed, topic)
        if topic is None or problem:
            yield Check("fail", f"topic {needed.name}", problem, TopicError.exit_code)
        else:
            yield from _settings(needed, topic)


def _settings(needed: NeededTopic, found: FoundTopic) -> Iterator[Check]:
    what = f"topic {needed.name}"
    problems = list(_problems(needed, found))
    for level, text in problems:
        yield Check(level, what, text, TopicError.exit_code if level == "fail" else 0)
    if not problems:
        retention_ms = int(found.settings.get("retention.ms", -1))
        kept = f"{retention_ms // 3_600_000} h" if retention_ms >= 0 else "for ever"
        yield Check(
            "ok",
            what,
            f"{found.partitions} partitions, {found.replicas} replicas, kept {kept}",
        )


def _problems(needed: NeededTopic, found: FoundTopic) -> Iterator[tuple[Level, str]]:
    settings = found.settings
    if found.leaderless:
        yield "fail", f"{found.leaderless} partitions have no leader: look at the brokers"
    least = int(settings.get("min.insync.replicas", 1))
    if least > found.replicas:
        yield (
            "fail",
            f"min.insync.replicas is {least} of {found.replicas} replicas: nothing is acknowledged",
        )
    elif found.replicas < _SAFE_REPLICAS:
        yield "warn", "one replica: acknowledged records are lost with the broker's disk"
    elif least < _SAFE_REPLICAS:
        yield (
            "warn",
            "min.insync.replicas is 1: acknowledged records can be lost with one broker; set 2",
        )
    largest = int(settings.get("max.message.bytes", 0))
    if needed.max_bytes and 0 < largest < needed.max_bytes + BATCH_OVERHEAD_BYTES:
        text = (
            f"max.message.bytes is {largest}, but spec.tunnel.maxBytes {needed.max_bytes}: larger "
            f"records are not sent; set at least {needed.max_bytes + BATCH_OVERHEAD_BYTES}"
        )
        yield "warn", text
    retention_ms = int(settings.get("retention.ms", -1))
    if 0 <= retention_ms < _RETENTION_MIN_MS:
        yield "warn", f"retention.ms is {retention_ms}: a reader may be down for less than a day"
    if "compact" in settings.get("cleanup.policy", ""):
        yield "fail", "cleanup.policy compacts: only the last record of each device stays"
