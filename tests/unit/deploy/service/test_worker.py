import gc

import pytest

from walle_deploy.service.worker import _unscanned


@pytest.fixture
def collecting():
    frozen = gc.get_freeze_count()
    yield frozen
    gc.unfreeze()


def test_what_a_table_is_made_of_is_not_looked_at_again(collecting):
    with _unscanned():
        assert not gc.isenabled()
        made = [{} for _ in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= collecting + len(made)


def test_a_table_that_cannot_be_made_stops_no_collecting(collecting):
    with pytest.raises(OSError, match="away"), _unscanned():
        raise OSError("away")
    assert gc.isenabled()
