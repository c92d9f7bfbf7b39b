import time
from contextlib import suppress

import pytest

from tests.integration.kafka.topics_of_tests import committed_records
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_stream.errors import SinkError
from walle_stream.ports import MergedFeature
from walle_stream.testing.sink_suite import SinkSuite, merged_features

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


class TestKafkaSink(SinkSuite):
    @pytest.fixture(autouse=True)
    def _topic(self, address, topics, driver):
        self.address, self.topic = address, topics.make(3)
        self.model = KafkaSinkModel(brokers=(address,), topic=self.topic, driver=driver)

    def open(self):
        return CONNECTOR.open_sink(self.model, f"walle-shop-{self.topic}")

    def read(self):
        for envelope, value in committed_records(self.address, self.topic, 3):
            kept = {
                name: getattr(envelope, name)
                for name in MergedFeature.__struct_fields__
                if name not in {"number", "feature"}
            }
            yield MergedFeature(0, feature=value, **kept)

    def test_a_feature_that_is_too_large_waits_and_is_said(self):
        sink = self.another()
        [small, large] = merged_features(2)
        large.feature = b'{"a":"%s"}' % (b"x" * 2 * self.model.max_bytes)
        with pytest.raises(SinkError) as found:
            sink.write("a", iter([small, large]))
        assert self.topic in found.value.message
        sink.write("a", iter([small]))
        self.expect([small])

    @pytest.mark.parametrize("value_format", ["compact", "msgpack"])
    def test_a_feature_that_the_format_cannot_have_is_there_as_json(self, value_format):
        self.model = self.model.model_copy(update={"format": value_format})
        features = merged_features(3)
        features[1].feature = b'{"x":%d}' % 2**70
        self.another().write("a", iter(features))
        self.expect(features)

    @pytest.mark.full
    def test_a_broker_that_dies_delays_and_doubles_nothing(self, broker):
        sink, features = self.another(), merged_features(40)
        sink.write("a", iter(features[:20]))
        broker.kill()
        with pytest.raises(SinkError):
            sink.write("a", iter(features))
        broker.heal()
        deadline, place = time.monotonic() + 90.0, 0
        while place <= features[-1].number:
            assert time.monotonic() < deadline
            with suppress(SinkError):
                place = sink.write("a", iter(features)).place
        self.expect(features)

    def test_a_topic_that_is_missing_is_said(self):
        model = self.model.model_copy(update={"topic": f"{self.topic}-not"})
        with pytest.raises(SinkError, match="does not exist"):
            CONNECTOR.open_sink(model, "x").write("a", iter(merged_features(1)))


def test_a_broker_that_is_away_is_said(driver):
    model = KafkaSinkModel(brokers=("127.0.0.1:1",), topic="t", driver=driver)
    with pytest.raises(SinkError):
        CONNECTOR.open_sink(model, "x").write("a", iter(merged_features(1)))
