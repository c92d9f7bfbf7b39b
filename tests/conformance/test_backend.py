"""Every backend of the engine passes the suite, and the toy, which is no engine's."""

import pytest

from walle_stream.engine.backends import backend_named
from walle_stream.engine.backends.cupy import CupyBackend
from walle_stream.errors import EngineError
from walle_stream.testing.backend_suite import BackendSuite
from walle_stream.testing.cupy_stand_in import stand_in
from walle_stream.testing.toy.backend import ToyBackend

pytest.importorskip("ml_dtypes")


def _has_gpu():
    try:
        backend_named("cupy")
    except EngineError:
        return False
    return True


class TestReference(BackendSuite):
    large = (20, 9)

    def make_backend(self):
        return backend_named("reference")

    def make_judge(self):
        # the definition is held against one that was written without numpy
        return ToyBackend()


class TestNumpy(BackendSuite):
    def make_backend(self):
        return backend_named("numpy")


class TestCupyOverItsStandIn(BackendSuite):
    def make_backend(self):
        return CupyBackend(stand_in())


if _has_gpu():

    class TestCupy(BackendSuite):
        def make_backend(self):
            return backend_named("cupy")


class TestToy(BackendSuite):
    large = (20, 9)

    def make_backend(self):
        return ToyBackend()
