"""These tests need what the service is made of."""

import pytest

for _name in ("cryptography", "httptools", "jwt", "starlette", "uvicorn", "uvloop"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")
