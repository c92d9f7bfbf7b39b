"""The topic of dead letters keeps the contract of sinks, plain and with a small topic limit."""

from typing import ClassVar

import pytest

from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_stream.testing.dead_letter_suite import DeadLetterSuite

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


class TestTopic(DeadLetterSuite):
    SETTINGS: ClassVar = {}

    @pytest.fixture(autouse=True)
    def _topic(self, address, topics):
        topic = topics.make(3, **self.SETTINGS)
        self.model = KafkaDeadLetterModel(brokers=address, topic=topic)

    def open_sink(self):
        return CONNECTOR.open_letters(self.model)

    def open_archive(self):
        return CONNECTOR.open_archive(self.model)


class TestSmallTopic(TestTopic):
    """The topic takes less than we were told: letters are cut until it does."""

    SETTINGS: ClassVar = {"max.message.bytes": "200000", "compression.type": "uncompressed"}

    @pytest.fixture(autouse=True)
    def _uncompressed(self, _topic):
        # with compression 1 MiB of one letter would fit
        self.model = self.model.model_copy(update={"codec": "none"})
