import pytest

from walle_deploy.device.files_metadata import trusted_time_ms

YEAR = 31_536_000_000
NOW = 57 * YEAR
MINUTE = 60_000


@pytest.mark.parametrize(
    ("clock", "told", "floor", "judged"),
    [
        (NOW, None, 0, NOW),
        (NOW, NOW + MINUTE, 0, NOW + MINUTE),
        (NOW, NOW - MINUTE, 0, NOW),
        (NOW - 9 * YEAR, NOW, 0, NOW),  # it is years behind
        (NOW + 9 * YEAR, NOW, 0, NOW + 9 * YEAR),  # or ahead: who says so may want an old state
        (NOW - 9 * YEAR, None, NOW - MINUTE, NOW - MINUTE),  # nobody says, but something was seen
        (NOW - 9 * YEAR, NOW - 8 * YEAR, NOW, NOW),  # nor does a liar turn it back
        (NOW, NOW - YEAR, NOW - MINUTE, NOW),
        (0, 0, 0, 0),
    ],
)
def test_the_time_by_which_expiry_is_judged(clock, told, floor, judged):
    assert trusted_time_ms(clock, told, floor) == judged
