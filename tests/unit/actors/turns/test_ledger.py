import zstandard

from walle_stream.actors.turns.ledger import RawRows, book_measured, book_sent
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import uplink_size_bytes
from walle_stream.wire.frame import FeatureRecord, encode_body
from walle_stream.wire.ledger import Ledger, TaskBytes

RECORDS = [
    FeatureRecord("d1", "big", "1", 1, b'{"a":"%s"}' % (b"x" * 992), b""),
    FeatureRecord("d1", "both", "1", 2, b'{"b":%s}' % (b"7" * 94), b"e" * 100),
    FeatureRecord("d2", "both", "1", 1, b'{"b":%s}' % (b"8" * 94), b"f" * 100),
]
CALLS = [
    CloudCall("d1", 1, "both", "1", "ask", b'{"q":1}'),
    CloudCall("d1", 2, "c", "1", "ask", b"{}"),
]
ENVELOPE_BYTES = uplink_size_bytes(b"")


def frames(records, calls=(), compression="zstd"):
    bodies = [encode_body(records, compression)] if records else []
    return [*bodies, *encode_calls(calls, compression)]


def test_a_frame_is_shared_in_proportion_to_what_tasks_put_in():
    (body,) = frames(RECORDS, compression="none")
    size = len(body) + ENVELOPE_BYTES
    tasks = book_sent(RECORDS, (), [body]).tasks
    assert list(tasks) == ["big", "both"]
    assert sum(each.sent_bytes for each in tasks.values()) == size
    assert (tasks["both"].features, tasks["both"].feature_bytes) == (2, 200)
    assert tasks["both"].encoding_bytes == 200
    assert abs(tasks["both"].sent_feature_bytes - size * 200 / 1400) <= 1
    assert abs(tasks["both"].sent_encoding_bytes - size * 200 / 1400) <= 1
    assert tasks["big"].sent_encoding_bytes == 0


def test_calls_share_the_frames_of_calls():
    bodies = frames(RECORDS[:1], CALLS)
    tasks = book_sent(RECORDS[:1], CALLS, bodies).tasks
    sizes = [len(body) + ENVELOPE_BYTES for body in bodies]
    assert len(sizes) == 2
    assert tasks["big"].sent_bytes == sizes[0]
    assert tasks["both"].sent_call_bytes + tasks["c"].sent_call_bytes == sizes[1]
    assert (tasks["both"].calls, tasks["both"].question_bytes) == (1, 7)
    assert tasks["both"].features == 0


def test_a_commit_that_sends_nothing_books_nothing():
    assert book_sent((), (), ()) == Ledger()
    assert book_measured(Ledger(), RawRows(), (), "zstd") == Ledger()


def test_measured_is_what_one_kind_alone_and_the_raw_rows_would_have_cost():
    raw = b'{"row":1}\n' * 40
    sent = book_sent(RECORDS, (), frames(RECORDS))
    added = book_measured(sent, RawRows([raw[:25], raw[25:]], 40, len(raw)), RECORDS, "none")
    assert (added.measured_rows, added.measured_raw_bytes) == (40, len(raw))
    packed = zstandard.ZstdCompressor(level=1).compress(raw)
    assert added.packed_raw_bytes == len(packed) + 10 + ENVELOPE_BYTES
    # an array of two arrays: a head, "d1", "both", "1", a number, the heads of two bytes, a time, no trace
    around = 10 + ENVELOPE_BYTES + 1 + 2 * (1 + 3 + 5 + 2 + 1 + 2 + 2 + 1 + 1)
    assert added.tasks["both"] == TaskBytes(
        measured_sent_bytes=sent.tasks["both"].sent_bytes,
        feature_alone_bytes=around + 200,
        encoding_alone_bytes=around + 200,
    )
    assert added.tasks["big"].encoding_alone_bytes == 0


def test_without_raw_rows_only_the_frames_are_measured():
    sent = book_sent(RECORDS, (), frames(RECORDS))
    added = book_measured(sent, RawRows(), RECORDS, "zstd")
    assert (added.measured_rows, added.measured_raw_bytes, added.packed_raw_bytes) == (0, 0, 0)
    assert added.tasks["both"].feature_alone_bytes > 0
