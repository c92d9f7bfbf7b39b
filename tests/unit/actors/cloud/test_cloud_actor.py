from threading import Event

import pytest

from walle_connectors.embedded import CONNECTOR
from walle_stream.actors.actor import ActorRef
from walle_stream.actors.cloud.cloud_actor import CloudActor, Drain
from walle_stream.errors import ActorDeadError, StoreFullError, TunnelClosedError
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body

pytestmark = pytest.mark.actors


def envelope(number):
    body = encode_body([FeatureRecord("d", "t", "1", number, b"{}", b"")], "none")
    return encode_uplink(UplinkEnvelope(0, 1, "ab" * 8, number, body))


@pytest.fixture
def tunnel(tmp_path):
    opened = CONNECTOR.open_tunnel(tmp_path / "t", 1 << 20)
    yield opened
    opened.close()


def start(tunnel, store):
    actor = CloudActor(
        store, tunnel.receiver, tunnel.downlink_sender, tunnel.downlink, tunnel.close
    )
    return ActorRef(actor)


def test_drain_merges_everything_that_was_sent(tmp_path, tunnel):
    store = CONNECTOR.open_features(tmp_path / "c")
    cloud = start(tunnel, store)
    for number in range(1, 6):
        tunnel.send([(0, number, envelope(number))])
    assert cloud.ask(Drain(), 30).features == 5
    cloud.stop()
    assert cloud.join(30)
    store.close()


def test_a_cloud_that_fails_closes_the_tunnel(tunnel):
    class Full:
        position = 0
        stats = None
        failed = Event()

        def durable_position(self):
            return 0

        def merge(self, _frames):
            self.failed.set()
            raise StoreFullError("full")

    cloud = start(tunnel, Full())
    tunnel.send([(0, 1, envelope(1))])
    assert cloud.join(30)
    assert isinstance(cloud.failure, StoreFullError)
    with pytest.raises(TunnelClosedError):
        tunnel.send([(0, 2, envelope(2))])
    with pytest.raises(ActorDeadError, match="full"):
        cloud.ask(Drain(), 30)
