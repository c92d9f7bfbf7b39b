"""One feature or call as one record of a broker's topic: key, headers, value.

The key is the device, so that a device's records keep their order. The value is the
feature as the script made it, in JSON or MessagePack that any program can read. The
rest is in headers, as text::

    v             version of this envelope
    inc           incarnation of the sender's data directory, 16 hexadecimal digits
    p  ep         the sender's partition, and the epoch of its owner
    n             sequence number of the device, contiguous from 1 per incarnation
    task  tv      task and its version
    t             event time of the waking event, epoch milliseconds
    ct            format of the value: json, msgpack or compact (see ``wire.compact``)
    enc           encoding beside the feature, raw bytes; absent without an encoding
    svc           called service; only for calls, whose value is the question
    traceparent   W3C trace context; optional

Rules for changes: a reader skips unknown headers, and a new optional header does not
change the version. A change that an older reader would misunderstand gets a new version,
which that reader refuses. A record that is delivered twice has the same
``idempotency_key``.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.compact import decode_compact, encode_compact
from walle_stream.wire.headers import FoundHeaders, Headers, read_headers

RECORD_VERSION: Final = 1

TRACE_HEADER: Final = "traceparent"
"""W3C Trace Context."""

_PARTITION_MAX: Final = 2**32 - 1
_SHARED: Final = ("inc", "p", "ep", "task", "tv", "ct", "svc")

type ValueFormat = Literal["json", "msgpack", "compact"]


class RecordEnvelope(msgspec.Struct, kw_only=True, gc=False):
    """Key and headers of a feature or a call."""

    device_id: str
    incarnation: str
    partition: int
    epoch: int
    sequence_number: int
    task: str
    task_version: str
    event_time_ms: int
    encoding: bytes = b""
    service: str = ""
    """Empty for a feature."""
    trace_parent: str = ""

    @property
    def idempotency_key(self) -> str:
        """Key that is equal for all deliveries of a record, and different for other records."""
        kind = "call/" if self.service else ""
        return f"{kind}{self.incarnation}/{self.device_id}/{self.sequence_number}"


def encode_record(
    envelope: RecordEnvelope, value: bytes, value_format: ValueFormat = "json"
) -> tuple[bytes, bytes, Headers]:
    """Return key, value and headers of a record; the JSON value is converted to the format.

    Raises:
        EnvelopeError: The format is not JSON, and the value is not JSON or has integers of more
            than 64 bits.
    """
    headers: Headers = [
        ("v", b"%d" % RECORD_VERSION),
        ("inc", envelope.incarnation.encode()),
        ("p", b"%d" % envelope.partition),
        ("ep", b"%d" % envelope.epoch),
        ("n", b"%d" % envelope.sequence_number),
        ("task", envelope.task.encode()),
        ("tv", envelope.task_version.encode()),
        ("t", b"%d" % envelope.event_time_ms),
        ("ct", value_format.encode()),
    ]
    if envelope.encoding:
        headers.append(("enc", envelope.encoding))
    if envelope.service:
        headers.append(("svc", envelope.service.encode()))
    if envelope.trace_parent:
        headers.append((TRACE_HEADER, envelope.trace_parent.encode()))
    if value_format != "json":
        value = _from_json(value, _WRITERS[value_format])
    return envelope.device_id.encode(), value, headers


def decode_record(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> tuple[RecordEnvelope, bytes]:
    """Return the envelope and the JSON value of an untrusted record.

    The last header of a name counts.

    Raises:
        EnvelopeError: A part is missing, altered, of another version, or impossible in a frame.
    """
    device, value, texts = read_headers("record", RECORD_VERSION, key, value, headers)
    incarnation, partition, epoch, task, version, value_format, service = _shared(
        *map(texts.found.get, _SHARED)
    )
    envelope = RecordEnvelope(
        device_id=device,
        incarnation=incarnation,
        partition=partition,
        epoch=epoch,
        sequence_number=texts.number("n", is_signed=False),
        task=task,
        task_version=version,
        event_time_ms=texts.number("t"),
        encoding=texts.get("enc"),
        service=service,
        trace_parent=texts.text(TRACE_HEADER, ""),
    )
    if value_format == "json":
        return envelope, value
    read = _READERS.get(value_format)
    if read is None:
        raise EnvelopeError(f"a record's value has the unknown format {value_format!r}")
    return envelope, _to_json(value, value_format, read)


@lru_cache(1_024)  # a sender's records differ only in numbers and times
def _shared(*values: bytes | None) -> tuple[str, int, int, str, str, str, str]:
    texts = FoundHeaders("record", zip(_SHARED, values, strict=True))
    return (
        texts.incarnation("inc"),
        texts.number("p", is_signed=False, at_most=_PARTITION_MAX),
        texts.number("ep", is_signed=False),
        texts.text("task"),
        texts.text("tv"),
        texts.text("ct"),
        texts.text("svc", ""),
    )


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "msgpack": msgspec.msgpack.encode,
    "compact": encode_compact,
}
_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "msgpack": msgspec.msgpack.decode,
    "compact": decode_compact,
}


def _from_json(value: bytes, write: Callable[[Any], bytes]) -> bytes:
    try:
        return write(msgspec.json.decode(value))
    except (msgspec.DecodeError, OverflowError, RecursionError) as error:
        raise EnvelopeError(f"a feature is no JSON of 64 bits: {error}") from error


def _to_json(value: bytes, value_format: str, read: Callable[[bytes], Any]) -> bytes:
    try:
        return msgspec.json.encode(read(value))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise EnvelopeError(
            f"a record's value is no JSON values as {value_format}: {error}"
        ) from error
