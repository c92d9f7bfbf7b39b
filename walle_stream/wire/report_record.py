"""A frame of reports as one record of a broker's topic, beside features and calls.

The value is the frame's unchanged body (``wire.reports``). The key is ``INCARNATION/PARTITION``
of the sender, so that distribution by key keeps a sender's reports together and in order.
Headers, as text::

    v        version of this envelope: 2. Features and calls have 1, so their readers refuse or
             skip this record, and never take it for either
    kind     reports
    inc      as for features (see ``wire.record``)
    p  ep    as for features
    n        number of the frame in the sender's outbox: ascending in (inc, p), with gaps, and
             the same for all deliveries of a record
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from walle_stream.errors import EnvelopeError
from walle_stream.wire.headers import Headers, read_headers
from walle_stream.wire.reports import is_reports

REPORT_RECORD_VERSION: Final = 2
_KIND: Final = ("kind", b"reports")
_PARTITION_MAX: Final = 2**31
_NUMBER_MAX: Final = 2**62


class ReportRecord(NamedTuple):
    """A frame of reports with its key and headers."""

    incarnation: str
    partition: int
    epoch: int
    number: int
    body: bytes


def encode_report_record(record: ReportRecord) -> tuple[bytes, bytes, Headers]:
    """Return key, value and headers of a record."""
    headers: Headers = [
        ("v", b"%d" % REPORT_RECORD_VERSION),
        _KIND,
        ("inc", record.incarnation.encode()),
        ("p", b"%d" % record.partition),
        ("ep", b"%d" % record.epoch),
        ("n", b"%d" % record.number),
    ]
    return f"{record.incarnation}/{record.partition}".encode(), record.body, headers


def is_report_record(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a record claims to hold reports."""
    name, kind = _KIND
    return dict(headers).get(name) == kind


def decode_report_record(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> ReportRecord:
    """Decode an untrusted record; only the first byte of its value is checked.

    The last header of a name counts.

    Raises:
        EnvelopeError: A part is missing, altered, of another version, or impossible in a frame.
    """
    sender, body, texts = read_headers("report", REPORT_RECORD_VERSION, key, value, headers)
    record = ReportRecord(
        incarnation=texts.incarnation("inc"),
        partition=texts.number("p", is_signed=False, at_most=_PARTITION_MAX),
        epoch=texts.number("ep", is_signed=False),
        number=texts.number("n", is_signed=False, at_most=_NUMBER_MAX),
        body=body,
    )
    name = f"a report's key {sender[:64]!r}"
    if sender != f"{record.incarnation}/{record.partition}":
        raise EnvelopeError(
            f"{name} is not that of incarnation {record.incarnation[:32]!r}, partition "
            f"{record.partition}"
        )
    if not is_reports(body):
        raise EnvelopeError(f"{name}: its {len(body)} bytes are no reports of this version")
    return record
