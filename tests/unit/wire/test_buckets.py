"""Values in buckets."""

from hypothesis import given
from hypothesis import strategies as st

from walle_stream.wire.buckets import BUCKET_GAMMA, bucket_of


@given(st.floats(1e-3, 1e17))
def test_a_value_lies_in_its_bucket(value):
    place, gamma = bucket_of(value), BUCKET_GAMMA
    assert value <= gamma**place * (1 + 1e-9)
    assert place == 0 or value > gamma ** (place - 1) * (1 - 1e-9)
