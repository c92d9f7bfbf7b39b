"""A Faust app that connects to nobody."""

import asyncio

import pytest


@pytest.fixture
def advertise():
    """Where its pages are found by others: where it listens, unless a test says otherwise."""


@pytest.fixture
def app(tmp_path, advertise):
    """Make one in an event loop of its own; imported here, as the extra may be missing."""
    pytest.importorskip("faust", reason="the extra `cloud` is not installed")
    from walle_connectors.faust.apps import WorkerOptions, make_app  # noqa: PLC0415 - an extra
    from walle_connectors.faust.preflight import TopicShape  # noqa: PLC0415 - an extra
    from walle_connectors.faust.settings import KafkaPart  # noqa: PLC0415 - an extra

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    part = KafkaPart(brokers="b:1", topic="t", tls={})
    options = WorkerOptions(data_dir=tmp_path, web_port=1234, advertise=advertise)
    yield make_app("a", part, TopicShape(4, 1), options)
    asyncio.set_event_loop(None)
    loop.close()
