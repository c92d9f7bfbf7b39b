"""A dead letter as a record of a topic, and back."""

import msgspec
import pytest

from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.letter_records import (
    PREFIX,
    decode_letter,
    decode_mark,
    encode_letter,
    encode_mark,
)
from walle_stream.errors import EnvelopeError
from walle_stream.ports import KeptLetter
from walle_stream.reading.dead_letters import record_dead_letter


def kept(record=b"\xffnot JSON", **fields):
    letter = record_dead_letter(
        record,
        route="decode",
        reason="no JSON",
        origin="raw.events[3]@17",
        device_id="gerät",
        error="E",
    )
    letter = msgspec.structs.replace(letter, **fields)
    return KeptLetter(letter=letter, pipeline="shop", incarnation="ab12", partition=3, number=9)


# written by version 1 of the layout; must be read for ever
STORED = (
    b"\xffnot JSON",
    [
        (PREFIX + name, text.encode())
        for name, text in {
            "v": "1",
            "id": "letter/ab12/3/d4d57699c3b1cf0941b9b99668ee1686",
            "pipeline": "shop",
            "incarnation": "ab12",
            "lane": "3",
            "number": "9",
            "route": "decode",
            "message": "no JSON",
            "exception": "E",
            "origin": "raw.events[3]@17",
            "device": "gerät",
            "attempts": "0",
            "holds": "record",
            "digest": "f65a8c35f24f26c6732eb13b8143e063",
            "size": "9",
            "topic": "raw.events",
            "partition": "3",
            "offset": "17",
        }.items()
    ],
)


def headers_of(record):
    return {name.removeprefix(PREFIX): text.decode() for name, text in record.headers}


def test_a_letter_comes_back():
    record = encode_letter(kept(), 1_000)
    assert decode_letter(record.value, record.headers) == kept()
    assert (record.key, record.value) == ("gerät".encode(), b"\xffnot JSON")


def test_letters_of_version_1_are_read_whatever_else_they_have():
    value, headers = STORED
    later = [*headers, (PREFIX + "colour", b"red"), ("traceparent", None)]
    assert decode_letter(value, headers) == decode_letter(value, later) == kept()
    marks = [(PREFIX + "v", b"1"), (PREFIX + "replayed", b"a/1"), (PREFIX + "replayed", b"b")]
    assert list(decode_mark(marks)) == ["a/1", "b"]


def test_headers_say_what_happened_and_where():
    headers = headers_of(encode_letter(kept(), 1_000))
    assert (headers["topic"], headers["partition"], headers["offset"]) == ("raw.events", "3", "17")
    assert (headers["id"], headers["pipeline"]) == (kept().idempotency_key, "shop")
    assert (headers["incarnation"], headers["lane"], headers["number"]) == ("ab12", "3", "9")
    assert (headers["exception"], headers["attempts"], headers["size"]) == ("E", "0", "9")
    assert headers["digest"] == kept().letter.digest
    assert "cut" not in headers


def test_the_record_behind_a_failed_run_is_told_in_parts():
    given = kept(origin="d7@4", place="raw.events[3]@17", route="task", holds="page")
    record = encode_letter(given, 1_000)
    headers = headers_of(record)
    assert (headers["topic"], headers["partition"], headers["offset"]) == ("raw.events", "3", "17")
    assert headers["origin"] == "d7@4"
    assert decode_letter(record.value, record.headers).letter.place == "raw.events[3]@17"


def test_an_origin_that_is_no_topic_has_no_parts():
    assert "topic" not in headers_of(encode_letter(kept(origin="feed.csv:3"), 1_000))


def test_a_value_that_was_cut_says_so_and_is_not_whole():
    record = encode_letter(kept(b"x" * 2_000), 100)
    assert len(record.value) == 100
    headers = headers_of(record)
    assert (headers["cut"], headers["size"]) == ("true", "2000")
    assert not decode_letter(record.value, record.headers).is_whole


def test_long_texts_are_cut_between_what_can_be_read_again():
    record = encode_letter(kept(reason="ü" * 3_000), 1_000)
    assert decode_letter(record.value, record.headers).letter.reason.startswith("üüü")
    assert record.size_bytes < 10_000


def test_a_letter_without_a_device_has_no_key():
    assert encode_letter(kept(device_id=""), 10).key is None


def test_marks_name_letters_and_are_none():
    mark = encode_mark(["letter/ab/0/1", "letter/ab/0/2"])
    assert decode_mark(mark.headers) == ["letter/ab/0/1", "letter/ab/0/2"]
    assert decode_letter(mark.value, mark.headers) is None
    assert decode_mark(encode_letter(kept(), 10).headers) == []


def test_other_programs_records_are_none():
    assert decode_letter(b"{}", [("traceparent", b"00"), ("v", b"1")]) is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("v", b"2", "layout version 2"),
        ("id", b"letter/ab12/3/00", "another id"),
        ("digest", b"00", "another id"),
        ("lane", b"-1", "no number"),
        ("id", None, "lacks the header"),
        ("route", b"elsewhere", "unknown value"),
        ("holds", b"gold", "unknown value"),
        ("attempts", b"many", "no number"),
        ("device", b"\xff", "no text"),
    ],
)
def test_altered_headers_are_refused(name, value, words):
    headers = [each for each in encode_letter(kept(), 10).headers if each[0] != PREFIX + name]
    if value is not None:
        headers.append((PREFIX + name, value))
    with pytest.raises(EnvelopeError, match=words):
        decode_letter(b"", headers)


def test_the_model_needs_brokers_and_a_topic():
    given = {"brokers": "a:1", "topic": "t"}
    assert KafkaDeadLetterModel.model_validate(given).max_bytes == 1024 * 1024
    with pytest.raises(ValueError, match="topic"):
        KafkaDeadLetterModel.model_validate({"brokers": "a:1"})
