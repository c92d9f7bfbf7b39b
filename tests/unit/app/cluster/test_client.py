"""What cannot run on a cluster is refused before anything starts."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from walle_stream.app.cluster.client import check_spread
from walle_stream.app.options import RunOptions
from walle_stream.errors import SourceError, StoreError


def assembly(**more):
    given = {"has_snapshots": True, "spread": lambda: None, **more}
    return SimpleNamespace(**given)


def refuse():
    raise SourceError("in one piece")


@pytest.mark.parametrize(
    ("made", "limit", "error"),
    [
        (assembly(), 5, SourceError),
        (assembly(has_snapshots=False), None, StoreError),
        (assembly(spread=refuse), None, SourceError),
    ],
)
def test_what_would_stay_on_one_node_is_refused(made, limit, error):
    with pytest.raises(error):
        check_spread(made, RunOptions(Path("d"), 2, limit))


def test_what_can_go_anywhere_is_not():
    check_spread(assembly(), RunOptions(Path("d"), 2))
