"""What ends a worker: signals while it begins, and what Faust raised."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("faust")

from aiokafka.errors import KafkaConnectionError
from faust.exceptions import ConsistencyError

from walle_connectors.faust import worker
from walle_connectors.faust.worker import translated
from walle_stream.errors import TopicError

PLACE = Path("/data/one")


@pytest.mark.parametrize(
    ("reason", "exit_code", "words"),
    [
        (KafkaConnectionError("gone"), 12, "the broker went away"),
        (ConsistencyError("four\nlines"), 6, "/data/one has more of the table than"),
        (Exception("Corruption: bad MANIFEST"), 6, "/data/one is damaged: .* a new --data-dir"),
        (Exception("IO error: No space left on device"), 8, "/data/one is on a full disk"),
        (ValueError("else"), 9, "start it again"),
        (TopicError("ours", "t"), 13, "^ours$"),
    ],
)
def test_what_ended_an_app_is_one_line_with_what_to_do(reason, exit_code, words):
    error = translated(reason, "g", PLACE)
    assert error.exit_code == exit_code
    assert "\n" not in str(error)
    with pytest.raises(type(error), match=words):
        raise error


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_making(loop, number):
    async def make():
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    early = worker._EarlySignal(loop)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(early.guard(make()))
    assert early.number == number


def test_one_that_comes_when_the_app_is_made_is_kept(loop):
    async def make():
        return "app"

    async def turn():
        await asyncio.sleep(0)

    early = worker._EarlySignal(loop)
    assert loop.run_until_complete(early.guard(make())) == "app"
    os.kill(os.getpid(), signal.SIGTERM)
    while early.number is None:
        loop.run_until_complete(turn())
    assert early.number == signal.SIGTERM


def test_one_that_the_making_swallows_is_kept(loop):
    async def make():
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "app"

    early = worker._EarlySignal(loop)
    assert loop.run_until_complete(early.guard(make())) == "app"
    assert early.number == signal.SIGTERM
