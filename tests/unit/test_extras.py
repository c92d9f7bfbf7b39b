"""The advice for a missing extra works, although no index has the library."""

import json
import sys
from types import SimpleNamespace

import pytest

from walle_stream.errors import extras


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"url": "file:///a%20b/walle", "dir_info": {"editable": True}}, "-e '/a b/walle[ray]'"),
        ({"url": "file:///a/walle.whl", "archive_info": {}}, "'/a/walle.whl[ray]'"),
        (
            {"url": "https://host/walle.git", "vcs_info": {"vcs": "git"}},
            "'walle-stream[ray] @ git+https://host/walle.git'",
        ),
        (None, "'walle-stream[ray]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_library_came(monkeypatch, origin, expected):
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))
    assert extras.how_to_install("ray") == f"{sys.executable} -m pip install {expected}"
