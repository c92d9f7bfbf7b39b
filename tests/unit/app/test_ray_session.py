"""What a worker must have in common with the driver."""

import msgspec
import pytest

from walle_stream.app.ray_session import Versions
from walle_stream.errors import ClusterError

HERE = Versions(python="3.14.0", ray="2.60.0", walle="0.1.0", hash_seed="0")


def test_the_same_versions_are_taken():
    HERE.check_worker(msgspec.structs.replace(HERE))


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("python", "Python 3.13.1"),
        ("ray", "Ray 3.13.1"),
        ("walle", "walle_stream 3.13.1"),
        ("hash_seed", "PYTHONHASHSEED 3.13.1"),
    ],
)
def test_another_version_is_named(field, name):
    other = msgspec.structs.replace(HERE, **{field: "3.13.1"})
    with pytest.raises(ClusterError, match=f"a worker of the Ray cluster has {name}, this process"):
        HERE.check_worker(other)
