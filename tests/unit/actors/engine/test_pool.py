"""The pool of engine actors over a stand-in for Ray: who is asked, who waits, what is tried again."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from walle_stream.actors.engine.pool import DEATHS_MAX, EngineHandles, EnginePool
from walle_stream.errors import ClusterError, DTypeError, EngineError


class DiedError(Exception):
    """As Ray's RayActorError."""


class TaskError(Exception):
    """As Ray's RayTaskError."""

    def __init__(self, cause):
        self.cause = cause


class OtherError(Exception):
    """As Ray's RayError, of which the others are not here."""


class Call:
    """A call that was put; somebody answers it."""

    def __init__(self, actor, method, arguments):
        self.actor, self.method, self.arguments = actor, method, arguments
        self.is_answered = threading.Event()
        self.value = None

    def answer(self, value):
        self.value = value
        self.is_answered.set()


class Ray:
    """The calls that the pool makes of Ray; actors are numbers, calls wait for an answer."""

    def __init__(self, count, in_flight=1, **options):
        self.exceptions = SimpleNamespace(
            RayActorError=DiedError, RayTaskError=TaskError, RayError=OtherError,
            OutOfMemoryError=MemoryError, ObjectLostError=LookupError, NodeDiedError=OSError,
        )  # fmt: skip
        self.puts, self.calls, self.changed = [], [], threading.Condition()
        actors = tuple(self._actor(number) for number in range(count))
        handles = EngineHandles(actors, {"rank": "weights"}, in_flight)
        self.pool = EnginePool(self, handles, **options)

    def put(self, value):
        self.puts.append(value)
        return f"put-{len(self.puts)}"

    def get(self, call):
        call.is_answered.wait()
        if isinstance(call.value, Exception):
            raise call.value
        return call.value

    def wait(self, calls, timeout):  # noqa: ARG002 - as Ray's
        # a second passes at once where nobody answers
        return ([each for each in calls if each.is_answered.wait(0.001)], [])

    def next_call(self, method):
        """Wait for a call that nobody has taken yet."""
        with self.changed:
            found = self.changed.wait_for(
                lambda: next((each for each in self.calls if each.method == method), None), 10
            )
            assert found is not None, f"nobody calls {method}"
            self.calls.remove(found)
            return found

    def _actor(self, number):
        def method(name):
            def remote(*arguments):
                with self.changed:
                    self.calls.append(call := Call(number, name, arguments))
                    self.changed.notify_all()
                return call

            made = SimpleNamespace(remote=remote)
            made.options = lambda **_: made
            return made

        return SimpleNamespace(**{name: method(name) for name in ("run", "reserve", "hello")})


@pytest.fixture
def ask():
    """Ask for a model in a thread; ``outcome()`` is what came of it."""
    threads = []

    def ask(ray, *inputs):
        found = []

        def run():
            try:
                found.append(ray.pool.models()["rank"](*inputs))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of it
                found.append(error)

        def outcome():
            thread.join(10)
            return found[0]

        thread = threading.Thread(target=run, daemon=True)
        threads.append(thread)
        thread.start()
        return outcome

    yield ask
    for each in threads:
        each.join(10)
        assert not each.is_alive()


def waits(ray, count):
    """Wait until that number is in line; they come there by themselves."""
    tick = threading.Event()
    while ray.pool.waiting_count != count:
        tick.wait(0.001)


ONE = np.ones(1, np.float32)


def test_inputs_go_by_reference_and_outputs_are_the_callers(ask):
    ray = Ray(1)
    outcome = ask(ray, ONE, ONE)
    call = ray.next_call("run")
    assert call.arguments == (("rank", "weights"), "put-1", "")
    kept = np.zeros(2)
    kept.flags.writeable = False
    call.answer((kept,))
    (y,) = outcome()
    y += 1
    assert kept.tolist() == [0, 0]
    assert ray.pool.loads == [0]


def test_the_least_loaded_actor_is_asked(ask):
    ray = Ray(3, in_flight=2)
    outcomes = [ask(ray, ONE) for _ in range(3)]
    calls = {call.actor: call for call in (ray.next_call("run") for _ in range(3))}
    assert sorted(calls) == [0, 1, 2]
    calls[1].answer((ONE,))
    while ray.pool.loads != [1, 0, 1]:
        threading.Event().wait(0.001)
    outcomes.append(ask(ray, ONE))
    calls["more"] = ray.next_call("run")
    assert calls["more"].actor == 1
    for each in calls.values():
        each.answer((ONE,))
    assert all(outcome() == (ONE,) for outcome in outcomes)


def test_hosts_begin_with_different_actors(ask):
    for first in range(3):
        ray = Ray(3, first=first)
        outcome = ask(ray, ONE)
        call = ray.next_call("run")
        assert call.actor == first
        call.answer(())
        outcome()


def test_who_finds_all_actors_busy_waits_and_comes_in_turn(ask):
    ray = Ray(2, in_flight=2)
    outcomes = [ask(ray, ONE) for _ in range(4)]
    calls = [ray.next_call("run") for _ in range(4)]
    assert ray.pool.loads == [2, 2]
    for number in range(1, 4):
        outcomes.append(ask(ray, np.float32([number])))
        waits(ray, number)
    assert len(ray.puts) == 4  # who waits takes no memory of the store
    for number in range(1, 4):
        calls.pop(0).answer(())
        calls.append(ray.next_call("run"))
        assert ray.puts[-1][0].tolist() == [number]
        assert ray.pool.loads == [2, 2]
    for each in calls:
        each.answer(())
    assert [outcome() for outcome in outcomes] == [()] * 7


def test_a_request_whose_actor_died_goes_to_another_alone_and_by_the_same_reference(ask):
    ray = Ray(2)
    outcome = ask(ray, ONE)
    ray.next_call("run").answer(DiedError())
    reserved = ray.next_call("reserve")
    reserved.answer(None)
    call = ray.next_call("run")
    assert (reserved.actor, call.actor) == (1, 1)
    assert call.arguments == (("rank", "weights"), "put-1", reserved.arguments[0])
    call.answer((ONE,))
    assert outcome() == (ONE,)
    assert len(ray.puts) == 1
    ray.next_call("hello").answer(None)


def test_an_actor_that_died_is_asked_again_when_it_answers(ask):
    ray = Ray(1)
    first, second = ask(ray, ONE), ask(ray, ONE)
    ray.next_call("run").answer(DiedError())
    waits(ray, 2)
    hello = ray.next_call("hello")
    assert hello.arguments == ({"rank": "weights"},)
    hello.answer(None)
    for _ in range(2):
        with ray.changed:
            ray.changed.wait_for(lambda: ray.calls)
        if ray.calls[0].method == "reserve":
            ray.next_call("reserve").answer(None)
        ray.next_call("run").answer(())
    assert first() == second() == ()


def test_a_reservation_that_is_over_is_made_again(ask):
    ray = Ray(2)
    outcome = ask(ray, ONE)
    ray.next_call("run").answer(DiedError())
    for answer in (None, (ONE,)):
        ray.next_call("reserve").answer(None)
        ray.next_call("run").answer(answer)
    assert outcome() == (ONE,)
    ray.next_call("hello").answer(None)


def test_a_request_that_ends_three_actors_is_an_error_with_model_and_actors(ask):
    ray = Ray(DEATHS_MAX)
    outcome = ask(ray, ONE)
    for number in range(DEATHS_MAX):
        if number:
            ray.next_call("reserve").answer(None)
        ray.next_call("run").answer(DiedError())
    error = outcome()
    assert type(error) is EngineError
    assert str(error).startswith("model 'rank': the processes of engine actors 0, 1, 2 ended one")
    for _ in range(DEATHS_MAX):
        ray.next_call("hello").answer(None)
    assert ray.pool.loads == [0] * DEATHS_MAX


def test_actors_that_die_before_the_request_is_in_them_are_not_its_fault(ask):
    ray = Ray(1)
    outcome = ask(ray, ONE)
    ray.next_call("run").answer(DiedError())
    for _ in range(2 * DEATHS_MAX):
        ray.next_call("hello").answer(None)
        ray.next_call("reserve").answer(DiedError())
    ray.next_call("hello").answer(None)
    ray.next_call("reserve").answer(None)
    ray.next_call("run").answer((ONE,))
    assert outcome() == (ONE,)


def test_errors_of_the_model_cross_unchanged(ask):
    ray, error = Ray(1), DTypeError("input 'x' is of float32")
    outcome = ask(ray, ONE)
    ray.next_call("run").answer(TaskError(error))
    assert outcome() is error


def test_a_cluster_that_is_gone_is_no_error_of_the_model(ask):
    for answer in (OtherError("gone"), TaskError(OtherError("gone"))):
        ray = Ray(1)
        outcome = ask(ray, ONE)
        ray.next_call("run").answer(answer)
        assert isinstance(outcome(), ClusterError)


@pytest.mark.parametrize("answer", [None, DiedError("killed for good")])
def test_nobody_waits_for_actors_that_do_not_come_back(ask, answer):
    ray = Ray(1, lost_after_ms=0)
    outcome = ask(ray, ONE)
    ray.next_call("run").answer(DiedError())
    if answer is not None:
        ray.next_call("hello").answer(answer)
    error = outcome()
    assert isinstance(error, ClusterError)
    assert "no engine actor is left, the last one was 0" in str(error)
    ray.pool.close()


def test_who_waits_when_the_pool_is_closed_gets_an_error(ask):
    ray = Ray(1)
    first, second = ask(ray, ONE), ask(ray, ONE)
    call = ray.next_call("run")
    waits(ray, 1)
    ray.pool.close()
    call.answer(())
    outcomes = [first(), second()]
    assert () in outcomes
    assert any(isinstance(each, EngineError) and "closed" in str(each) for each in outcomes)
