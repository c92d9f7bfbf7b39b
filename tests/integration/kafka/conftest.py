"""The broker of all Kafka tests: one for the whole session, three for those that need copies."""

import importlib.util
import os
import uuid
from pathlib import Path

import pytest

from walle_stream.errors import BrokerMissingError
from walle_stream.testing.broker import make_topic, open_broker, open_cluster

_CONFLUENT = pytest.mark.skipif(
    not importlib.util.find_spec("confluent_kafka"), reason="the extra `confluent` is missing"
)


@pytest.fixture(params=["kafka-python", pytest.param("confluent", marks=_CONFLUENT)])
def driver(request):
    """The libraries that move records."""
    return request.param


@pytest.fixture(
    params=["kafka-python", pytest.param("confluent", marks=[_CONFLUENT, pytest.mark.full])]
)
def group_driver(request):
    """The libraries that are members of a group; with the second one only in `make test-all`."""
    return request.param


@pytest.fixture
def cluster(address):
    """A broker's topics of one test, which go with it."""
    from tests.integration.kafka.cloud_worker import Cluster

    made = Cluster(address)
    yield made
    made.close()


HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before those without the mark are left out
def pytest_collection_modifyitems(items):
    # without a broker, kafka-python's constructors fail and leave the pair of sockets that would
    # wake their threads, and any connection to a broker that starts just then. A later test would
    # find these sockets.
    left = pytest.mark.filterwarnings(
        r"ignore:unclosed <socket\.socket fd=\d+, family=1:ResourceWarning",
        r"ignore:unclosed <socket\.socket fd=\d+, family=2, .* raddr=.'127\.0\.0\.1':ResourceWarning",
    )
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(left)
            item.add_marker(pytest.mark.kafka)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _or_missing())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _or_missing())


def _or_missing():
    """A given broker cannot be killed and has no CA of ours: such a test is skipped, saying so."""
    try:
        return (yield)
    except BrokerMissingError as error:
        _missing(error)


def _missing(error):
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the Kafka tests: {error}", pytrace=False)
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def running_broker(tmp_path_factory):
    with open_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def broker(running_broker):
    """A real Apache Kafka, with TLS; whatever a test does to it is healed behind it."""
    yield running_broker
    running_broker.heal()


@pytest.fixture(scope="session")
def address(running_broker):
    """Of the broker, for clients without TLS."""
    return running_broker.address()


@pytest.fixture(scope="session")
def topics(address):
    """Topics for the whole session; see ``Topics``."""
    from tests.integration.kafka.topics import Topics

    made = Topics(address)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running_copies(tmp_path_factory):
    with open_cluster(tmp_path_factory.mktemp("copies")) as brokers:
        yield brokers


@pytest.fixture
def copies(running_copies):
    """Three brokers (3 copies, 2 in sync); whatever a test does to them is healed behind it."""
    yield running_copies
    running_copies.heal()


@pytest.fixture
def topic(broker):
    """Make topics that nobody else has; they are deleted behind the test."""
    from kafka import KafkaAdminClient

    made = []

    def make(name="topic", **options):
        made.append(f"{name}-{uuid.uuid4().hex[:12]}")
        make_topic(broker.any_options(), made[-1], **options)
        return made[-1]

    yield make
    broker.heal()
    if made:
        admin = KafkaAdminClient(**broker.any_options())
        admin.delete_topics(made)
        admin.close()
