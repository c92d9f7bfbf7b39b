"""A dead letter as a record of a topic: key, headers, value.

The key is the device, if it is known. The value is the refused record, unchanged, or its
beginning. All else is text in headers. They are named as in Kafka's own dead letter queues
(KIP-298, KIP-1034), under our prefix::

    __walle.errors.v             version of this layout
    __walle.errors.id            idempotency key: the same for every delivery
    __walle.errors.pipeline      name of the pipeline
    __walle.errors.incarnation, .lane, .number   identity of the letter: its data directory,
                                 partition, and number in the partition
    __walle.errors.route         decode, oversized, invalid, late, task, overflow
    __walle.errors.message       one line for a person
    __walle.errors.exception     class of the exception, if there was one
    __walle.errors.origin        place in the source: topic[partition]@offset, file:line, ...
    __walle.errors.topic, .partition, .offset    the record, if the source is a topic; for a
                                 failed run, the record that woke the task
    __walle.errors.device        the device, if it is known
    __walle.errors.task          the task whose run failed
    __walle.errors.attempts      number of attempts of the run; 0 if the letter is no run
    __walle.errors.holds         content of the value: record, page, message or feature
    __walle.errors.digest        blake2b-128 of the whole record, hexadecimal
    __walle.errors.size          bytes of the whole record; 0 if unknown
    __walle.errors.cut           true; present only if the value is not the whole record

A mark records that letters were replayed. It has no value, a header ``v``, and for each letter
a header ``__walle.errors.replayed`` with its idempotency key. ``wire.record`` has the rules for
changes of the layout.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast, get_args

from walle_stream.errors import EnvelopeError
from walle_stream.ports import DeadLetter, DeadLetterRoute, Holds, KeptLetter
from walle_stream.wire.headers import FoundHeaders, Headers

LETTER_VERSION: Final = 1

PREFIX: Final = "__walle.errors."

_ORIGIN: Final = re.compile(r"([A-Za-z0-9._-]{1,249})\[([0-9]{1,10})\]@([0-9]{1,19})")
_TEXT_MAX_BYTES: Final = 2_048
_RAW_CHARACTERS: Final = 1_024
_WHAT: Final = "dead letter"
_ROUTES: Final = get_args(DeadLetterRoute.__value__)
_CONTENTS: Final = get_args(Holds.__value__)


class LetterRecord(NamedTuple):
    """A record of the dead letter topic."""

    key: bytes | None
    value: bytes
    headers: Headers

    @property
    def size_bytes(self) -> int:
        """Approximate size in the topic, without the batch's overhead."""
        headers = sum(len(name) + len(text) + 4 for name, text in self.headers)
        return len(self.key or b"") + len(self.value) + headers + 32


def encode_letter(kept: KeptLetter, value_max_bytes: int) -> LetterRecord:
    """Return a letter as a record; the value is cut at ``value_max_bytes``."""
    letter = kept.letter
    value = letter.record[:value_max_bytes]
    fields = {
        "v": str(LETTER_VERSION),
        "id": kept.idempotency_key,
        "pipeline": kept.pipeline,
        "incarnation": kept.incarnation,
        "lane": str(kept.partition),
        "number": str(kept.number),
        "route": letter.route,
        "message": letter.reason,
        "exception": letter.error,
        "origin": letter.origin,
        "device": letter.device_id,
        "task": letter.task,
        "attempts": str(letter.attempts),
        "holds": letter.holds,
        "digest": letter.digest,
        "size": str(letter.size_bytes),
    }
    found = _ORIGIN.fullmatch(letter.place or letter.origin)
    if found is not None:
        fields |= dict(zip(("topic", "partition", "offset"), found.groups(), strict=True))
    if len(value) < letter.size_bytes or (value and not kept.is_whole):
        fields["cut"] = "true"
    headers: Headers = [
        (PREFIX + name, text.encode(errors="replace")[:_TEXT_MAX_BYTES])
        for name, text in fields.items()
        if text
    ]
    key = letter.device_id.encode(errors="replace") or None
    return LetterRecord(key, value, headers)


def decode_letter(
    value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> KeptLetter | None:
    """Decode an untrusted letter; the inverse of ``encode_letter``.

    Returns None for a foreign record or a mark.

    Raises:
        EnvelopeError: A header is missing, altered or of another version.
    """
    own = [(name, text) for name, text in headers if name.startswith(PREFIX)]
    if not own or any(name == PREFIX + "replayed" for name, _ in own):
        return None
    found = FoundHeaders(_WHAT, own)
    _check_version(found)
    route, holds = found.text(PREFIX + "route"), found.text(PREFIX + "holds")
    if route not in _ROUTES or holds not in _CONTENTS:
        raise EnvelopeError(f"a {_WHAT} has an unknown value in its header route or holds")
    record = value or b""
    origin, place = _lenient(found, "origin"), _place(found)
    letter = DeadLetter(
        route=cast("DeadLetterRoute", route),
        reason=_lenient(found, "message"),
        origin=origin,
        place="" if place == origin else place,
        device_id=found.text(PREFIX + "device", ""),
        task=found.text(PREFIX + "task", ""),
        error=_lenient(found, "exception"),
        raw=record[: 4 * _RAW_CHARACTERS].decode(errors="replace")[:_RAW_CHARACTERS],
        digest=found.text(PREFIX + "digest", ""),
        attempts=found.number(PREFIX + "attempts", is_signed=False),
        holds=cast("Holds", holds),
        size_bytes=found.number(PREFIX + "size", is_signed=False),
        record=record,
    )
    kept = KeptLetter(
        letter=letter,
        pipeline=found.text(PREFIX + "pipeline"),
        incarnation=found.text(PREFIX + "incarnation"),
        partition=found.number(PREFIX + "lane", is_signed=False),
        number=found.number(PREFIX + "number", is_signed=False),
    )
    if found.text(PREFIX + "id") != kept.idempotency_key:
        raise EnvelopeError(f"a {_WHAT} has another id than its headers imply: it was altered")
    return kept


def encode_mark(idempotency_keys: Sequence[str]) -> LetterRecord:
    """Return the record that marks letters as replayed."""
    headers: Headers = [(PREFIX + "v", b"%d" % LETTER_VERSION)]
    headers += [(PREFIX + "replayed", each.encode()) for each in idempotency_keys]
    return LetterRecord(None, b"", headers)


def decode_mark(headers: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """Return the idempotency keys in an untrusted mark; none if the record is no mark."""
    return [
        (text or b"").decode(errors="replace")
        for name, text in headers
        if name == PREFIX + "replayed"
    ]


def _check_version(found: FoundHeaders) -> None:
    given = found.get(PREFIX + "v")
    if given != b"%d" % LETTER_VERSION:
        raise EnvelopeError(
            f"a {_WHAT} has layout version {(given or b'none').decode(errors='replace')}, this "
            f"side reads {LETTER_VERSION}: use the version of walle_stream that wrote it"
        )


def _place(found: FoundHeaders) -> str:
    topic = _lenient(found, "topic")
    if not topic:
        return ""
    return f"{topic}[{_lenient(found, 'partition')}]@{_lenient(found, 'offset')}"


def _lenient(found: FoundHeaders, name: str) -> str:
    # texts for people may be cut within a character
    return found.get(PREFIX + name).decode(errors="replace")
