import threading

import numpy as np
import pytest

from walle_stream.engine import Module, threads
from walle_stream.engine.threads import BlasThreads, blas_threads, checked_threads, run_with
from walle_stream.errors import EngineError


class Library:
    """A BLAS with a number and nothing else."""

    def __init__(self, count=8):
        self.count = count
        self.writes = []

    def write(self, count):
        self.count = count
        self.writes.append(count)


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def limits(library):
    return BlasThreads(lambda: library.count, library.write)


def test_a_number_holds_in_its_block_alone(library, limits):
    with limits.limited(2):
        assert library.count == 2
    assert library.count == 8


def test_the_smallest_of_several_holds(library, limits):
    with limits.limited(4):
        with limits.limited(1), limits.limited(4):
            assert library.count == 1
        assert library.count == 4
    assert library.count == 8
    assert library.writes == [4, 1, 4, 8]


def test_blocks_may_end_in_any_order(library, limits):
    first, second = limits.limited(3), limits.limited(2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert library.count == 2
    second.__exit__(None, None, None)
    assert library.count == 8


def test_an_error_gives_the_number_back(library, limits):
    with pytest.raises(ValueError, match="of the run"), limits.limited(2):
        raise ValueError("of the run")
    assert library.count == 8


def test_a_run_gives_the_process_its_number_back(dense):
    found = blas_threads()
    if found is None:
        pytest.skip("numpy has no OpenBLAS here")
    before, met = found.count, []
    module = Module(dense, threads=1)
    inner = module._runner.run
    module._runner.run = lambda given: (met.append(found.count), inner(given))[1]
    module.run({"x": np.ones((2, 3), np.float32)})
    assert met == [1]
    assert found.count == before


def test_no_number_changes_nothing(monkeypatch):
    monkeypatch.setattr(threads, "blas_threads", None)
    with run_with(None):
        pass


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_a_wrong_number_is_refused(count):
    with pytest.raises(EngineError, match="whole number from 1"):
        checked_threads(count)


def test_it_is_said_where_the_number_cannot_be_set(monkeypatch, dense):
    monkeypatch.setattr(threads, "blas_threads", lambda: None)
    with pytest.raises(EngineError, match="no OpenBLAS"):
        Module(dense, threads=1)
    Module(dense)


def test_many_threads_leave_the_number_as_it_was(library, limits):
    def hold(count):
        for _ in range(200):
            with limits.limited(count):
                assert library.count <= count

    workers = [threading.Thread(target=hold, args=(count,)) for count in (1, 2, 3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert library.count == 8
