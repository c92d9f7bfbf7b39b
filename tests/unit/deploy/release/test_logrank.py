"""The sequential test of two groups beside each other, against its definition and by enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_deploy.model.health import LEVELS
from walle_deploy.release.logrank import BETS, NOTHING, gains, strength

counts = st.integers(0, 12)


def chances(mine, others, failing):
    """Return the hypergeometric distribution of the number of failing devices in ``new``."""
    whole = math.comb(mine + others, failing)
    return {
        won: math.comb(mine, won) * math.comb(others, failing - won) / whole
        for won in range(max(0, failing - others), min(mine, failing) + 1)
    }


def naive(mine, won, others, lost):
    """What each bet wins, in logarithms, one number at a time."""
    devices, failing = mine + others, won + lost
    found = []
    for odds, _ in BETS:
        if not failing:
            found.append(0.0)
            continue
        share, rate = mine / devices, failing / devices
        fair = min(
            (1 + share * (odds - 1)) ** failing,
            (1 + rate * (odds - 1)) ** mine,
            odds**mine * (1 + share * (1 / odds - 1)) ** (devices - failing),
            odds**failing * (1 + rate * (1 / odds - 1)) ** others,
        )
        found.append(math.log(odds**won / fair))
    return found


def table(rows, width=1):
    """Arrays for windows: devices at risk and failing, of each group."""
    mine, won, others, lost = np.array(rows, float).reshape(-1, 4).T[:, :, None].repeat(width, 2)
    return (mine, won), (others, lost)


@st.composite
def windows(draw):
    mine, others = draw(counts), draw(counts)
    return mine, draw(st.integers(0, mine)), others, draw(st.integers(0, others))


@given(st.lists(windows(), min_size=1, max_size=6))
def test_all_windows_at_once_are_what_they_are_one_by_one(rows):
    found = gains(*table(rows))[:, 0]
    assert found == pytest.approx(np.array([naive(*row) for row in rows]), abs=1e-9)


@pytest.mark.parametrize("bet", range(len(BETS)))
def test_no_bet_wins_on_average_where_versions_are_alike(bet):
    """Exactly, of all small windows: whoever fails, any of them may be those of ``new``."""
    for mine, others in itertools.product(range(9), repeat=2):
        for failing in range(mine + others + 1):
            likely = chances(mine, others, failing)
            rows = [(mine, won, others, failing - won) for won in likely]
            won = np.exp(gains(*table(rows))[:, 0, bet])
            assert np.dot(won, list(likely.values())) <= 1 + 1e-12


def test_no_mixture_over_several_windows_wins_on_average_either():
    """Exactly: every course of three windows, in which those that failed are no longer at risk."""

    def expected(mine, others, ahead, logs):
        if not ahead:
            return math.exp(float(strength(logs)))
        failing = min(ahead[0], mine + others)
        mean = 0.0
        for won, chance in chances(mine, others, failing).items():
            lost = failing - won
            more = gains(*table([(mine, won, others, lost)], len(LEVELS)))[0]
            mean += chance * expected(mine - won, others - lost, ahead[1:], logs + more)
        return mean

    for mine, others in ((1, 9), (3, 5), (8, 2), (6, 1)):
        for ahead in ((1, 1, 1), (2, 0, 3), (4, 1, 2)):
            assert expected(mine, others, ahead, np.array(NOTHING)) <= 1 + 1e-12


def test_a_group_alone_is_no_evidence():
    for row in ((9, 5, 0, 0), (0, 0, 9, 5), (9, 0, 9, 0)):
        assert gains(*table([row])) == pytest.approx(0, abs=1e-12)


def test_few_that_are_held_out_say_much_where_all_others_fail():
    """Two of 200 that do not fail: a chance of one in 19,900."""
    logs = np.array(NOTHING) + gains(*table([(198, 198, 2, 0)], len(LEVELS)))[0]
    assert 0.9 * math.log(1e3) < float(strength(logs)) < math.log(19_900)


def test_before_the_first_window_there_is_no_evidence():
    assert float(strength(np.array(NOTHING))) == pytest.approx(0)
