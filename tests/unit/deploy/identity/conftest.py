"""These tests need what tokens and certificates are made of."""

import pytest

for _name in ("cryptography", "jwt"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")
