"""The Kafka source keeps the contract of sources, over a real broker."""

import importlib.util
from typing import ClassVar

import pytest

from tests.integration.kafka.source_rows import row, source
from walle_stream.testing.source_suite import SourceSuite

pytestmark = pytest.mark.integration


class KafkaSuite(SourceSuite):
    """Four partitions, one of them empty; records of every wrong kind."""

    driver: ClassVar[str]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _topics(cls, address, topics):
        cls.address, cls.names = address, [topics.make(), topics.make()]
        rows = [row(device, number) for number, device in enumerate("abcdeabcabadbcaeedcba" * 2)]
        rows[3:3] = [
            ("a", b"{"),
            ("b", None),
            ("c", row("x", 1, device_id="x")[1]),
            ("d", row("d", 1, event_time_ms=-5)[1]),
            ("e", b"x" * 5_000),
            (b"\xff", row("e", 2)[1]),
            ("a", row("a", 99, device_id="a", ingest_time_ms=7)[1]),
            ("b", b'{"id": "click",\n "kind": "click"}'),
        ]
        for name in cls.names:
            topics.write(name, [(*each, 0 if each[0] in {"a", "e"} else 2) for each in rows])
            topics.write(name, [(*row("z", 50), 3), (*row("z", 51), 3)])

    def make_source(self, folder):
        del folder
        return source(self.address, self.names[0], maxRecordBytes=3_000, driver=self.driver)

    def make_changed_source(self, folder):
        del folder
        return source(self.address, self.names[1], driver=self.driver)


class TestKafkaPython(KafkaSuite):
    driver = "kafka-python"


class TestMapped(KafkaSuite):
    """The same records, mapped: two events of each."""

    driver = "kafka-python"
    mapping: ClassVar = {
        "time": "event_time_ms",
        "events": [
            {"kind": "click", "page": "page_id", "uid": "uid"},
            {"kind": "exposure", "page": "page_id", "at": "event_time_ms + 3"},
        ],
    }

    def make_source(self, folder):
        del folder
        return source(self.address, self.names[0], maxRecordBytes=3_000, mapping=self.mapping)

    def make_changed_source(self, folder):
        return super().make_source(folder)


@pytest.mark.skipif(
    not importlib.util.find_spec("confluent_kafka"), reason="the extra `confluent` is missing"
)
class TestConfluent(KafkaSuite):
    driver = "confluent"
