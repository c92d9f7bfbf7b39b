"""Dead letters as rows of a partition: the letter, its record, and the mark of an unsent letter.

The letter is JSON and begins with the fields for people. Its record has a row of its own, but only
if the letter does not show it whole. Both rows stay. The mark of a letter that the sink has not
acknowledged is written with the letter and deleted in a later commit, as frames are.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec

from walle_stream.ports import DeadLetter
from walle_stream.store import keys
from walle_stream.store.transaction import Transaction

_DECODER: Final = msgspec.json.Decoder(DeadLetter)


class LetterReader(Protocol):
    """Read access to a partition's database."""

    def get(self, key: bytes) -> bytes | None:
        """Return the committed value of a key."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the committed keys with a prefix, ascending."""

    def scan_range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the committed keys in start ≤ key < end, ascending."""


def encode_letter(letter: DeadLetter) -> bytes:
    """Return a letter as JSON, without its record."""
    fields = msgspec.structs.asdict(letter)
    del fields["record"]
    return msgspec.json.encode(fields)


def decode_letter(row: bytes) -> DeadLetter:
    """Read a letter, without its record; the inverse of ``encode_letter``."""
    return _DECODER.decode(row)


def put_letter(
    transaction: Transaction, number: int, letter: DeadLetter, *, is_to_send: bool
) -> None:
    """Write a letter's rows; ``is_to_send``: whether a sink has yet to receive it."""
    transaction.put(keys.dead_letter_key(number), encode_letter(letter))
    if letter.record and letter.record != letter.raw.encode():
        transaction.put(keys.letter_record_key(number), letter.record)
    if is_to_send:
        transaction.put(keys.unsent_letter_key(number), b"")


def read_letters(store: LetterReader) -> Iterator[tuple[int, DeadLetter]]:
    """Iterate over all letters with their records, by number."""
    for key, row in store.scan(keys.DEAD_LETTER_PREFIX):
        number = keys.parse_number(key)
        yield number, _with_record(store, number, row)


def read_unsent(store: LetterReader, after: int) -> Iterator[tuple[int, DeadLetter]]:
    """Iterate over the letters that the sink has not acknowledged, by number."""
    start, end = keys.unsent_letter_key(after + 1), keys.unsent_letter_key(2**64 - 1)
    for key, _ in store.scan_range(start, end):
        number = keys.parse_number(key)
        row = store.get(keys.dead_letter_key(number))
        if row is not None:
            yield number, _with_record(store, number, row)


def drop_marks(transaction: Transaction, numbers: Iterable[int]) -> None:
    """Delete the marks of letters that the sink has acknowledged."""
    for number in numbers:
        transaction.delete(keys.unsent_letter_key(number))


def _with_record(store: LetterReader, number: int, row: bytes) -> DeadLetter:
    letter = decode_letter(row)
    record = store.get(keys.letter_record_key(number))
    return msgspec.structs.replace(letter, record=letter.raw.encode() if record is None else record)
