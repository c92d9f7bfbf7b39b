"""A reader whose partitions somebody assigns, over a source of lists."""

from types import SimpleNamespace

import pytest

from walle_stream.errors import SourceMovedError, StoreError
from walle_stream.reading.assigned import AssignedSource, Assignment, Held, Placed


class Parts:
    """A source whose partition n has the rows n0, n1, ...; an offset is how many were read."""

    reads_apart = True

    def __init__(self, rows):
        self.rows = rows

    def open(self, offsets, _count, _batch_events, _limit, _placing, numbers):
        return Reader(self.rows, {n: int(offsets.get(n, b"0")) for n in numbers})


class Reader:
    progress = 0.5
    unread = "unread"

    def __init__(self, rows, at):
        self.rows, self.at, self.is_closed = rows, at, False

    def read(self):
        assert not self.is_closed
        number = min((n for n in self.at if self.at[n] < self.rows), default=None)
        if number is None:
            return []
        self.at[number] += 1
        return [SimpleNamespace(partition=number, offset=b"%d" % self.at[number])]

    def drain(self):
        return []

    @property
    def is_done(self):
        return all(at >= self.rows for at in self.at.values())

    def close(self):
        self.is_closed = True


class Host:
    """Keeps what was committed, as a ``Placement``: here all that was handed out."""

    def __init__(self):
        self.committed, self.open, self.said, self.error = {}, set(), [], None

    def assign(self, numbers, generation):
        if self.error is not None:
            raise self.error
        assert not self.open & set(numbers)
        self.open |= set(numbers)
        self.said.append(("assign", list(numbers), generation))
        return {n: self.committed[n] for n in numbers if n in self.committed}

    def revoke(self, numbers, deadline_ms):
        assert deadline_ms > 0
        if numbers:
            self.open -= set(numbers)
            self.said.append(("revoke", list(numbers)))

    def lose(self, numbers):
        self.said.append(("lose", list(numbers)))


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def assignment():
    return Assignment()


@pytest.fixture
def reader(host, assignment):
    source = AssignedSource(Parts(rows=2), 4, lambda _device, _count: 0, assignment)
    made = source.join(host, 10)
    made.is_urgent = True
    return made


def read(reader, host, times=1):
    found = []
    for _ in range(times):
        for batch in reader.read():
            assert batch.partition in host.open
            host.committed[batch.partition] = batch.offset
            found.append((batch.partition, int(batch.offset)))
    return found


def test_without_a_partition_it_reads_nothing_and_goes_on(reader, host):
    assert read(reader, host) == []
    assert not reader.is_done
    assert reader.progress == -1


def test_it_reads_what_is_placed_and_goes_on_where_it_stood(reader, host, assignment):
    assignment.place(1, {0, 1})
    assert read(reader, host) == [(0, 1)]
    assignment.place(2, {0, 3})
    assert read(reader, host, 4) == [(0, 2), (3, 1), (3, 2)]
    assert host.said == [("assign", [0, 1], 1), ("revoke", [1]), ("assign", [3], 2)]
    assert assignment.held == Held(Placed(2, {0, 3}), Placed(2, {0, 3}), is_ended=True)


def test_a_partition_that_comes_back_begins_where_its_state_is(reader, host, assignment):
    assignment.place(1, {0})
    read(reader, host)
    assignment.place(2, set())
    read(reader, host)
    assignment.place(3, {0})
    assert read(reader, host, 2) == [(0, 2)]


def test_an_earlier_placement_that_comes_late_is_passed_over(reader, host, assignment):
    assignment.place(5, {1})
    assignment.place(4, {2})
    read(reader, host)
    assert host.open == {1}


def test_it_is_done_with_its_source_when_nobody_places_any_more(reader, host, assignment):
    assignment.place(1, {0})
    read(reader, host, 3)
    assert not reader.is_done
    assignment.finish()
    assert reader.is_done


def test_what_somebody_else_had_later_is_not_held(reader, host, assignment):
    assignment.place(1, {0})
    read(reader, host)
    host.error = SourceMovedError("taken", 7)
    assignment.place(2, {0, 1})
    assert read(reader, host) == [(0, 2)]
    assert host.said[-1] == ("lose", [1])
    assert assignment.held.placed == Placed(2, {0})
    assert assignment.held.taken_in == 7


def test_a_partition_that_cannot_be_opened_is_closed_and_the_error_told(reader, host, assignment):
    host.error = StoreError("damaged")
    assignment.place(1, {0})
    with pytest.raises(StoreError):
        reader.read()
    assert host.said == [("lose", [0])]


def test_a_stop_ends_it_at_once(reader, host, assignment):
    assignment.place(1, {0})
    read(reader, host)
    assert reader.drain() == []
    assert reader.is_done
    reader.close()
    reader.close()
