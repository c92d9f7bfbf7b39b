"""Signals while a worker begins; Faust's own start is tried in the integration tests."""

import asyncio
import os
import signal

import pytest

pytest.importorskip("faust")

from walle_connectors.faust import worker


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
