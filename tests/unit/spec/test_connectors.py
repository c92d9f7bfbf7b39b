"""One rule places the devices of a pipeline."""

from types import SimpleNamespace

from walle_connectors import embedded, events, kafka, simulator
from walle_stream.spec.connectors import placing_of
from walle_stream.types import partition_of


def test_the_sources_rule_goes_before_the_tunnels_and_both_before_ours():
    by_key = kafka.CONNECTOR.device_partition
    own = SimpleNamespace(device_partition=lambda _, count: count - 1)
    for source in (events.CONNECTOR, simulator.CONNECTOR):
        assert placing_of(source, embedded.CONNECTOR) is partition_of
        assert placing_of(source, kafka.CONNECTOR) == by_key
    assert placing_of(kafka.CONNECTOR, embedded.CONNECTOR) == by_key
    assert placing_of(kafka.CONNECTOR, kafka.CONNECTOR) == by_key
    assert placing_of(own, kafka.CONNECTOR)("d", 3) == 2
