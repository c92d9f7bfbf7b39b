"""The pool of engine actors over Ray itself: the same bytes as in process, through kill -9 of actors."""

import os
import signal
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from walle_stream.actors.engine.actors import EngineActors
from walle_stream.actors.engine.pool import DEATHS_MAX, EnginePool
from walle_stream.actors.engine.worker import ModelBlueprint
from walle_stream.app.ray.session import ray_session
from walle_stream.errors import ClusterError, EngineError
from walle_stream.spec.engine import EngineSpec
from walle_stream.testing.model_suite import TEXTS, ModelSuite, here, suite_models

onnx = pytest.importorskip("onnx")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

TIMEOUT_S = 120.0
IN_FLIGHT = 2
LONG = np.array(1_000), np.eye(200, dtype=np.float32)
"""Inputs of ``power`` for which it takes a while."""

ENDLESS = np.array(1_000_000), LONG[1]


class CountingRay:
    """Ray itself, and what was put into its object store by this process."""

    def __init__(self, ray):
        self._ray, self.puts = ray, []

    def put(self, value):
        self.puts.append(type(value))
        return self._ray.put(value)

    def __getattr__(self, name):
        return getattr(self._ray, name)


@pytest.fixture(scope="module")
def ray(ray_environ):
    """Join the cluster of the tests."""
    before = dict(os.environ)
    os.environ.update({name: each for name, each in ray_environ.items() if "RAY" in name})
    with ray_session(1) as ray:
        yield CountingRay(ray)
    os.environ.clear()
    os.environ.update(before)


@contextmanager
def engine(ray, **spec):
    blueprints = {
        name: ModelBlueprint(f"spec.models.{name}", model, "numpy", None)
        for name, model in suite_models().items()
    }
    actors = EngineActors(ray, blueprints, EngineSpec(**spec), hosts=1, describe=os.getcwd)
    try:
        yield actors
    finally:
        actors.close()


@contextmanager
def ready(ray, **spec):
    with engine(ray, **spec) as actors:
        actors.await_ready(lambda *_: None, lambda: False, TIMEOUT_S * 1000)
        pool = EnginePool(ray, actors.handles)
        yield actors, pool
        pool.close()


@pytest.fixture(scope="module")
def two(ray):
    """Two actors with the suite's models, and how often something was put to have them."""
    ray.puts.clear()
    with ready(ray, actors=2, cpus=0.1, in_flight=IN_FLIGHT) as (actors, pool):
        yield actors, pool, [*ray.puts]


class TestPooledModel(ModelSuite):
    @pytest.fixture(autouse=True)
    def _pool(self, two):
        _, self.pool, _ = two

    def make_runners(self):
        return self.pool.models()


def test_each_model_is_put_into_the_store_once_for_all_actors(ray, two):
    actors, pool, puts = two
    assert [each.__name__ for each in puts] == ["ModelBlueprint"] * len(TEXTS)
    ray.puts.clear()
    for _ in range(4):
        pool.models()["rank"](np.ones(2), np.ones((2, 2)))
    assert ray.puts == [tuple] * 4
    assert len(set(actors.pids)) == 2


def outcome_of(pool, found, inputs=LONG):
    try:
        found.append(pool.models()["power"](*inputs))
    except EngineError as error:
        found.append(error)


def busy_actor(pool):
    """Wait until a request is in an actor."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not any(pool.loads):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    return pool.loads.index(1)


def test_a_request_whose_actor_is_killed_gets_its_answer_from_another(ray, two):
    actors, pool, _ = two
    ray.puts.clear()
    found = []
    thread = Thread(target=outcome_of, args=(pool, found))
    thread.start()
    os.kill(actors.pids[busy_actor(pool)], signal.SIGKILL)
    thread.join()
    assert found[0][0].tobytes() == here("power", *LONG)[0].tobytes()
    assert ray.puts == [tuple]


def test_no_actor_has_more_requests_than_it_may_and_all_are_answered(two):
    _, pool, _ = two
    most, found = [0, 0], []
    threads = [Thread(target=outcome_of, args=(pool, found)) for _ in range(7)]
    for each in threads:
        each.start()
    while any(each.is_alive() for each in threads):
        most = [max(pair) for pair in zip(most, pool.loads, strict=True)]
        threads[0].join(0.001)
    assert most == [IN_FLIGHT, IN_FLIGHT]
    assert len({each[0].tobytes() for each in found}) == 1


def test_a_request_that_ends_every_actor_is_an_error_that_names_it(ray):
    with ready(ray, actors=1, cpus=0.1) as (actors, pool):
        pid, found = actors.pids[0], []
        thread = Thread(target=outcome_of, args=(pool, found, ENDLESS))
        thread.start()
        busy_actor(pool)
        [handle] = actors.handles.actors
        for number in range(DEATHS_MAX):
            if number:  # started again by Ray, and the request is in it
                pid, _ = ray.get(handle.hello.options(max_task_retries=-1).remote({}))
                await_cpu(pid)
            os.kill(pid, signal.SIGKILL)
        thread.join()
        assert isinstance(found[0], EngineError)
        assert str(found[0]).startswith(
            "model 'power': the processes of engine actors 0, 0, 0 ended"
        )
        (y,) = pool.models()["power"](np.array(1), np.eye(2, dtype=np.float32))
        assert y[0, 1] == 0  # others are run as before


def await_cpu(pid, ticks=30):
    """Wait until a process has computed for 0.3 s more: its request is under way."""

    def spent():
        return sum(
            map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
        )

    begun, deadline_s = spent(), time.monotonic() + TIMEOUT_S
    while spent() < begun + ticks:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_actors_for_which_there_is_no_room_are_one_line(ray):
    with engine(ray, actors=2, cpus=100, gpus=0.5) as actors:
        with pytest.raises(ClusterError) as caught:
            actors.await_ready(lambda *_: None, lambda: False, 300)
        wanted = ("0, 1 of 2", "100 CPUs", "0.5 GPUs", "spec.engine.actors")
        assert all(part in caught.value.message for part in wanted)
        actors.await_ready(lambda *_: None, lambda: True, 0)  # a run that ends waits no longer
