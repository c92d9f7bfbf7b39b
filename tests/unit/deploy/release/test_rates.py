import pytest

from walle_deploy.release.rates import rate_of, share_of


@pytest.mark.parametrize(
    ("events", "low", "high"),
    [(0, 0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.67), (100, 81.4, 121.6)],
)
def test_a_rate_has_nearly_the_exact_poisson_interval(events, low, high):
    """Garwood's, from tables; Byar's is a few percent off where there are few."""
    found = rate_of(events, 2.0)
    assert found.value == events / 2
    assert (2 * found.low, 2 * found.high) == pytest.approx((low, high), rel=0.06, abs=0.02)


@pytest.mark.parametrize(
    ("marked", "total", "low", "high"),
    [(0, 10, 0, 0.2775), (1, 10, 0.0179, 0.4042), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)],
)
def test_a_share_has_wilsons_interval(marked, total, low, high):
    found = share_of(marked, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_nothing_has_no_rate():
    assert share_of(0, 0) is None
    assert rate_of(0, 0) is None
