"""A pipeline that cannot run on a cluster is refused before anything starts."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from walle_stream.app.cluster.client import check_spread
from walle_stream.app.options import RunOptions
from walle_stream.errors import SourceError, StoreError


def assembly(**more):
    given = {"snapshots": SimpleNamespace(place="s3://b/a"), "spread": lambda: None, **more}
    return SimpleNamespace(**given)


def refuse():
    raise SourceError("in one piece")


@pytest.mark.parametrize(
    ("made", "limit", "error"),
    [
        (assembly(), 5, SourceError),
        (assembly(snapshots=None), None, StoreError),
        (assembly(spread=refuse), None, SourceError),
    ],
)
def test_what_would_stay_on_one_node_is_refused(made, limit, error):
    with pytest.raises(error):
        check_spread(made, RunOptions(Path("d"), 2, limit))


@pytest.mark.parametrize("place", ["s3://b/a", "file:///f", "/f"])
def test_what_can_go_anywhere_is_not_and_a_single_copy_is_told(caplog, place):
    check_spread(assembly(snapshots=SimpleNamespace(place=place)), RunOptions(Path("d"), 2))
    assert ["the only copy" in each.getMessage() for each in caplog.records] == (
        [] if place.startswith("s3") else [True]
    )
