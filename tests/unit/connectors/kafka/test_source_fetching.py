import pytest

from walle_connectors.kafka.source.fetching import NO_RECORDS, Record, columns

RECORDS = [Record(offset, 10 * offset, b"k", b"%d" % offset) for offset in (3, 4, 7)]


def test_columns_have_a_record_in_each_place():
    found = columns(RECORDS)
    assert [Record(*each) for each in zip(*found, strict=True)] == RECORDS
    assert not any(columns([]))


@pytest.mark.parametrize(("offset", "left"), [(3, 0), (4, 1), (5, 2), (7, 2), (8, 3)])
def test_those_before_an_offset_are_the_first(offset, left):
    found = columns(RECORDS).before(offset)
    assert [Record(*each) for each in zip(*found, strict=True)] == RECORDS[:left]
    assert NO_RECORDS.before(offset) == NO_RECORDS
