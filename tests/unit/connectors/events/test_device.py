"""What a device gives its agent: a file that may grow, standard input, and one after the other."""

import gzip
import json
import os
import threading

import pytest

from walle_connectors.events import CONNECTOR
from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError

PARTITION = 3
WAIT_S = 30
READERS = []


def line(number, device="d"):
    event = {
        "device_id": device,
        "id": "click",
        "kind": "click",
        "page_id": "p",
        "page_instance": "",
        "event_time_ms": number,
        "ingest_time_ms": number,
        "uid": str(number),
    }
    return json.dumps(event).encode() + b"\n"


def lines(*numbers):
    return b"".join(map(line, numbers))


@pytest.fixture
def stdin():
    """A pipe in place of standard input; gives its writing end."""
    kept = os.dup(0)
    ends = []

    def make():
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        ends.append(os.fdopen(writing, "wb", buffering=0))
        return ends[-1]

    yield make
    os.dup2(kept, 0)
    os.close(kept)
    for end in ends:
        end.close()


def source(path=None, follows=False):
    return CONNECTOR.open_device(path, "d", PARTITION, follows=follows)


def opened(path=None, offset=None, follows=False, batch_events=100):
    offsets = {} if offset is None else {PARTITION: offset}
    READERS.append(source(path, follows).open(offsets, 8, batch_events))
    return READERS[-1]


@pytest.fixture(autouse=True)
def _close():
    yield
    while READERS:
        READERS.pop().close()


def read(reader, enough=10**6):
    batches, count = [], 0
    while not reader.is_done and count < enough:
        found = reader.read()
        batches += found
        count += sum(len(batch.events) for batch in found)
    return batches


def uids(batches):
    assert {batch.partition for batch in batches} <= {PARTITION}
    return [int(event.uid) for batch in batches for event in batch.events]


def last(batches):
    return batches[-1].offset


def test_a_file_is_read_to_its_end_once(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1, 2, 3))
    batches = read(opened(file))
    assert (uids(batches), batches[-1].is_end) == ([1, 2, 3], True)
    assert read(opened(file, last(batches))) == []
    file.write_bytes(lines(1, 2, 3, 4))
    assert uids(read(opened(file, last(batches)))) == [4]


@pytest.mark.parametrize("batch_events", [1, 2, 100])
def test_it_goes_on_behind_every_offset(tmp_path, batch_events):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1, 2) + b"\n{}\n" + lines(3, 4, 5))
    batches = read(opened(file, batch_events=batch_events))
    assert uids(batches) == [1, 2, 3, 4, 5]
    assert [each.origin for batch in batches for each in batch.dead_letters] == ["e.jsonl:4"]
    for place, batch in enumerate(batches):
        rest = read(opened(file, batch.offset))
        assert uids(rest) == uids(batches[place + 1 :])


def test_another_file_is_refused(tmp_path):
    file, other = tmp_path / "e.jsonl", tmp_path / "o.jsonl"
    file.write_bytes(lines(1, 2))
    other.write_bytes(lines(7, 8, 9))
    with pytest.raises(SourceChangedError):
        opened(other, last(read(opened(file))))


@pytest.mark.parametrize("numbers", [0, 1, 30])
def test_a_line_of_another_device_is_refused_with_its_place(tmp_path, numbers):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(*range(numbers)) + line(99, "other") + lines(100))
    reader, batches = opened(file), []
    while len(uids(batches)) < numbers:
        batches += reader.read()
    place = rf"e.jsonl:{numbers + 1}: .*device 'other'.*agent of 'd'"
    with pytest.raises(SourceError, match=place):
        reader.read()
    assert uids(batches) == [*range(numbers)]
    file.write_bytes(lines(*range(numbers)) + lines(99, 100))
    assert uids(read(opened(file, last(batches) if batches else None))) == [99, 100]


def test_a_file_that_grows_is_followed(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1))
    reader = opened(file, follows=True)
    batches = read(reader, 1)
    with file.open("ab") as growing:
        half = line(2)
        growing.write(half[:20])
        growing.flush()
        assert not reader.read()
        growing.write(half[20:] + lines(3))
    batches += read(reader, 2)
    assert not reader.drain()
    assert (uids(batches), any(batch.is_end for batch in batches)) == ([1, 2, 3], False)
    assert uids(read(opened(file, last(batches)))) == []


def test_what_cannot_be_followed_is_refused(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1, 2))
    reader = opened(file, follows=True)
    read(reader, 2)
    file.write_bytes(lines(1))
    with pytest.raises(SourceChangedError, match="replaced or cut while it was followed"):
        reader.read()
    packed = tmp_path / "e.jsonl.gz"
    packed.write_bytes(gzip.compress(lines(1)))
    assert uids(read(opened(packed))) == [1]
    with pytest.raises(SourceError, match="leave out --follow"):
        opened(packed, follows=True)
    with pytest.raises(SourceNotFoundError, match="correct --events"):
        opened(tmp_path)


def test_standard_input_is_read_as_it_comes(stdin):
    end = stdin()
    reader = opened()
    assert not reader.read()
    end.write(b"\xef\xbb\xbf" + lines(1, 2) + line(3)[:9])
    batches = read(reader, 2)
    end.write(line(3)[9:])
    end.close()
    batches += read(reader)
    assert (uids(batches), batches[-1].is_end) == ([1, 2, 3], True)


def test_the_same_lines_on_standard_input_are_new_in_another_run(stdin):
    offset, offsets = None, []
    for _ in range(2):
        with stdin() as end:
            end.write(lines(1, 2))
        batches = read(opened(offset=offset))
        assert uids(batches) == [1, 2]
        offset = last(batches)
        offsets += [batch.offset for batch in batches]
    assert len({*offsets}) == len(offsets)


def test_a_file_goes_on_where_it_stood_before_standard_input(stdin, tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1, 2, 3, 4))
    reader = opened(file, batch_events=1)
    batches = read(reader, 2)
    for number in (10, 11):
        with stdin() as end:
            end.write(lines(number))
        batches = read(opened(offset=last(batches)))
        assert uids(batches) == [number]
    batches = read(opened(file, last(batches)))
    assert uids(batches) == [3, 4]
    assert read(opened(file, last(batches))) == []


def test_a_stop_takes_the_whole_lines_of_standard_input(stdin):
    end = stdin()
    end.write(lines(1, 2, 3) + line(4)[:15])
    reader = opened(follows=True, batch_events=1)
    batches = [*reader.read()]
    writer = threading.Thread(target=end.write, args=(line(4)[15:] + lines(5),))
    writer.start()
    batches += reader.drain()
    writer.join(WAIT_S)
    assert uids(batches) == [1, 2, 3, 4]
    assert reader.is_done
    end.close()
    assert uids(read(opened(offset=last(batches)))) == [5]


def test_the_end_of_a_pipe_that_is_followed_ends_the_agent_and_closes_no_page(stdin):
    with stdin() as end:
        end.write(lines(1, 2) + line(3)[:-1])
    reader = opened(follows=True)
    batches = read(reader)
    assert (uids(batches), reader.is_done) == ([1, 2, 3], True)
    assert not any(batch.is_end for batch in [*batches, *reader.drain()])
    # who wrote into it begins again
    with stdin() as end:
        end.write(lines(4))
    assert uids(read(opened(offset=last(batches), follows=True))) == [4]


@pytest.mark.usefixtures("stdin")  # which puts it back
def test_the_null_device_is_at_its_end():
    with open(os.devnull) as nothing:  # noqa: PTH123 - for its descriptor
        os.dup2(nothing.fileno(), 0)
    reader = opened(follows=True)
    assert read(reader) == []
    assert reader.is_done


@pytest.mark.usefixtures("stdin")
def test_a_file_on_standard_input_is_followed(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1))
    with file.open("rb") as given:
        os.dup2(given.fileno(), 0)
    reader = opened(follows=True)
    batches = read(reader, 1)
    for _ in range(3):
        assert not reader.read()
    assert not reader.is_done
    with file.open("ab") as growing:
        growing.write(lines(2))
    batches += read(reader, 1)
    assert uids(batches) == [1, 2]
    assert not any(batch.is_end for batch in [*batches, *reader.drain()])


def test_a_data_directory_is_of_one_device():
    made = source()
    made.check_fingerprint(made.fingerprint)
    with pytest.raises(SourceChangedError, match="made by walle run"):
        made.check_fingerprint({"format": "events", "head_bytes": 1})
    with pytest.raises(SourceChangedError, match="of device 'e', not of 'd'"):
        made.check_fingerprint({**made.fingerprint, "device": "e"})


LONG = b"x" * 3_000_000  # many chunks beyond what a record may have


def letters(batches):
    found = [each for batch in batches for each in batch.dead_letters]
    return [(each.route, each.origin, each.size_bytes) for each in found]


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("is_piped", [True, False])
def test_a_line_that_is_too_long_is_a_dead_letter(stdin, tmp_path, is_piped, end):
    behind = lines(3, 4) if end else b""
    text = lines(1, 2) + LONG + end + behind
    if is_piped:
        writer = threading.Thread(
            target=lambda pipe: (pipe.write(text), pipe.close()), args=[stdin()]
        )
        writer.start()
        batches = read(opened())
        writer.join(WAIT_S)
    else:
        file = tmp_path / "e.jsonl"
        file.write_bytes(text)
        batches = read(opened(file))
        assert read(opened(file, last(batches))) == []
        file.write_bytes(text + b"\n" * (not end) + lines(5))
        assert uids(read(opened(file, last(batches)))) == [5]
    assert uids(batches) == ([1, 2, 3, 4] if end else [1, 2])
    name = "stdin" if is_piped else "e.jsonl"
    assert letters(batches) == [("oversized", f"{name}:3", len(LONG))]


def test_one_that_is_only_begun_is_waited_for(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_bytes(lines(1) + LONG)
    reader = opened(file, follows=True)
    batches = read(reader, 1)
    assert (uids(batches), letters(batches)) == ([1], [])
    for _ in range(60):  # up to the end that is there for now
        batches += reader.read()
    with file.open("ab") as more:
        more.write(LONG + b"\n" + lines(2))
    batches += read(reader, 1)
    assert uids(batches) == [1, 2]
    assert letters(batches) == [("oversized", "e.jsonl:2", 2 * len(LONG))]
    assert uids(read(opened(file, batches[0].offset))) == [2]
