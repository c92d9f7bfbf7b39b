"""The tunnel over a real Apache Kafka, held to the suite of all tunnels."""

import importlib.util
import sys
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import pytest

from walle_connectors.kafka import CONNECTOR
from walle_stream.testing.tunnel_suite import PARTITIONS, TunnelSuite

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from topics_of_tests import fresh_model

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]


class BothEnds:
    """What the suite asks for: the devices' end and the cloud's in one."""

    def __init__(self, model, max_bytes):
        self._device = CONNECTOR.open_device(model, max_bytes)
        self._cloud = CloudEnd(model)
        self.send, self.acks = self._device.send, self._device.acks
        self.downlink = self._device.downlink
        self.receiver = self._cloud.receiver
        self.downlink_sender = self._cloud.downlink_sender

    def close(self):
        self._device.close()
        self._cloud.close()


class KafkaSuite(TunnelSuite):
    keys = MappingProxyType({})

    @pytest.fixture(autouse=True)
    def _own_topics(self, address):
        # the same folder means the same tunnel
        with ExitStack() as stack:
            self._models, self._stack, self._address = {}, stack, address
            yield

    def open_tunnel(self, path, max_bytes):
        if path not in self._models:
            self._models[path] = self._stack.enter_context(
                fresh_model(self._address, PARTITIONS, **self.keys)
            )
        return BothEnds(self._models[path], max_bytes)


class TestJson(KafkaSuite):
    pass


class TestMessagePack(KafkaSuite):
    keys = MappingProxyType({"format": "msgpack", "codec": "lz4", "linger_ms": 5, "trace": True})


@pytest.mark.skipif(
    not importlib.util.find_spec("confluent_kafka"), reason="the extra `confluent` is missing"
)
class TestConfluent(KafkaSuite):
    keys = MappingProxyType({"driver": "confluent"})
