import asyncio

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from walle_connectors.faust.apps import WorkerOptions, make_app
from walle_connectors.faust.preflight import TopicShape
from walle_connectors.faust.settings import KafkaPart

SHAPE = TopicShape(4, 1)


@pytest.fixture
def app(tmp_path):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    part = KafkaPart(brokers="b:1", topic="t", tls={})
    yield make_app("a", part, SHAPE, WorkerOptions(data_dir=tmp_path, web_port=1234))
    asyncio.set_event_loop(None)
    loop.close()


def test_connections_are_encrypted_where_the_yaml_says_so(app):
    assert app.conf.broker_credentials.protocol.value == "SSL"


def test_pages_are_on_loopback_and_topics_like_the_source(app):
    assert str(app.conf.canonical_url) == "http://127.0.0.1:1234"
    assert (app.conf.topic_partitions, app.conf.topic_replication_factor) == (4, 1)
    assert app.conf.web_bind == "127.0.0.1"
