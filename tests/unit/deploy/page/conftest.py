"""These tests need what the service is made of."""

from importlib import import_module

import pytest

for _name in ("jwt", "starlette", "uvicorn"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")


@pytest.fixture
def store(tmp_path):
    showing = import_module("tests.unit.deploy.page.showing")
    with showing.opened(tmp_path / "releases.db") as store:
        yield store
