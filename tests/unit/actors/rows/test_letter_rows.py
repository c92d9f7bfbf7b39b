"""Rows of dead letters: what is written is read, and the listing shows no record."""

import json

import pytest

from walle_stream.actors.rows.letter_rows import (
    decode_letter,
    drop_marks,
    encode_letter,
    put_letter,
    read_letters,
    read_unsent,
)
from walle_stream.ports import RECORD_MAX_BYTES, KeptLetter
from walle_stream.reading.dead_letters import record_dead_letter
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore

RECORDS = [b"short", b"\xff\xfe\n", "ü".encode() * 4_000, b"x" * (RECORD_MAX_BYTES + 1), b""]


@pytest.fixture
def store(tmp_path):
    with PartitionStore.open(tmp_path / "rows") as opened:
        yield opened


def made(record):
    return record_dead_letter(record, route="decode", reason="why", origin="f:1")


def put(store, letters, *, is_to_send=True):
    transaction = store.begin()
    for number, letter in enumerate(letters, 1):
        put_letter(transaction, number, letter, is_to_send=is_to_send)
    transaction.commit()


def test_records_come_back_as_they_were(store):
    put(store, map(made, RECORDS))
    found = dict(read_letters(store))
    assert [letter.record for letter in found.values()] == [r[:RECORD_MAX_BYTES] for r in RECORDS]
    whole = [
        KeptLetter(letter=each, pipeline="p", incarnation="ab", partition=0, number=1).is_whole
        for each in found.values()
    ]
    assert whole == [True, True, True, False, False]


def test_what_the_letter_shows_whole_has_no_row_of_its_own(store):
    put(store, map(made, RECORDS))
    numbers = [keys.parse_number(key) for key, _ in store.scan(keys.LETTER_RECORD_PREFIX)]
    assert numbers == [2, 3, 4]


def test_a_letters_json_has_no_record():
    fields = json.loads(encode_letter(made(b"a record")))
    assert "record" not in fields
    assert (fields["raw"], fields["size_bytes"]) == ("a record", 8)
    assert decode_letter(encode_letter(made(b"a record"))).raw == "a record"


def test_marks_are_of_those_that_a_sink_has_not(store):
    put(store, [made(b"%d" % n) for n in range(5)])
    assert [number for number, _ in read_unsent(store, 2)] == [3, 4, 5]
    transaction = store.begin()
    drop_marks(transaction, [1, 3, 5])
    transaction.commit()
    assert [(number, each.record) for number, each in read_unsent(store, 0)] == [
        (2, b"1"),
        (4, b"3"),
    ]
    assert len(dict(read_letters(store))) == 5


def test_without_a_sink_there_are_no_marks(store):
    put(store, [made(b"x")], is_to_send=False)
    assert list(read_unsent(store, 0)) == []
