"""What the look at a broker says of topics; the broker is a dictionary."""

import asyncio
import re
import socket
from types import SimpleNamespace
from typing import ClassVar

import pytest

pytest.importorskip("faust")

from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
)
from aiokafka.structs import OffsetAndMetadata

from walle_connectors.faust import group, preflight
from walle_connectors.faust.continuity import check_offsets
from walle_connectors.faust.place import check_address
from walle_connectors.faust.preflight import Tables, TopicShape, look_at_topic
from walle_connectors.faust.settings import KafkaPart
from walle_stream.errors import (
    BrokerUnreachableError,
    MetricsAddressError,
    TopicError,
    TunnelError,
)

PART = KafkaPart(brokers="127.0.0.1:9092", topic="features")


class Consumer:
    """Each question is answered by the next of the given leaders by topic."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self._client = self

    async def fetch_all_metadata(self):
        leaders = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        partitions = {
            name: {
                number: SimpleNamespace(leader=leader, replicas=[1])
                for number, leader in enumerate(each)
            }
            for name, each in leaders.items()
        }
        return SimpleNamespace(
            topics=lambda **_: list(partitions),
            partitions_for_topic=lambda name: set(partitions[name]),
            _partitions=partitions,
        )

    async def beginning_offsets(self, places):
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places):
        return dict.fromkeys(places, 500)

    async def stop(self):
        pass


class Admin:
    """Group ``g`` has read what is given."""

    read: ClassVar = {}
    starting: ClassVar = []
    settings: ClassVar = (0, ("cleanup.policy", "compact", 0), ("max.message.bytes", "1048588", 0))

    def __init__(self, **_options):
        self.made = []

    async def start(self):
        pass

    async def close(self):
        pass

    async def list_consumer_group_offsets(self, name):
        assert name == "g"
        if Admin.starting:
            raise Admin.starting.pop()
        return {
            TopicPartition(topic, 0): OffsetAndMetadata(at, "") for topic, at in self.read.items()
        }

    async def describe_configs(self, resources):
        return [
            SimpleNamespace(resources=[(*self.settings[:1], "", 2, each.name, self.settings[1:])])
            for each in resources
        ]

    async def create_topics(self, topics):
        assert [each.name for each in topics] == ["g-log-changelog"]
        return SimpleNamespace(topic_errors=[])


def look(monkeypatch, *answers, tables=()):
    async def connect(_part):
        return Consumer(*answers)

    monkeypatch.setattr(preflight, "connect", connect)
    monkeypatch.setattr(group, "AIOKafkaAdminClient", Admin)
    return asyncio.run(look_at_topic(PART, Tables("g", tables)))


def test_a_topic_that_nobody_leads_yet_is_waited_for(monkeypatch):
    starting, there = {"features": [-1, 1]}, {"features": [1, 1]}
    assert look(monkeypatch, starting, starting, there) == TopicShape(2, 1)


def test_so_are_changelogs(monkeypatch):
    starting = {"features": [1, 1], "g-log-changelog": [-1, -1]}
    there = {"features": [1, 1], "g-log-changelog": [1, 1]}
    assert look(monkeypatch, starting, there, tables=["log"]) == TopicShape(2, 1)


@pytest.mark.parametrize("read", [{}, {"other": 7}, {"features": -1}])
def test_a_changelog_is_made_for_a_group_that_has_read_nothing(monkeypatch, read):
    monkeypatch.setattr(Admin, "starting", [GroupCoordinatorNotAvailableError()])
    monkeypatch.setattr(Admin, "read", read)
    before, behind = {"features": [1]}, {"features": [1], "g-log-changelog": [1]}
    assert look(monkeypatch, before, behind, tables=["log"]) == TopicShape(1, 1)


def test_a_changelog_that_is_gone_is_not_made_anew_without_a_word(monkeypatch):
    monkeypatch.setattr(Admin, "read", {"features": 300})
    with pytest.raises(TunnelError, match=r"'g' has read 300 records .* delete the group 'g'"):
        look(monkeypatch, {"features": [1]}, tables=["log"])


def test_a_topic_that_was_made_anew_is_not_begun_behind_its_end(monkeypatch):
    monkeypatch.setattr(Admin, "read", {"features": 501})
    with pytest.raises(TunnelError, match=r"0 of topic 'features' ends at 500, .* up to 501"):
        look(monkeypatch, {"features": [1]}, tables=["log"])


def test_what_retention_deleted_before_it_was_read_is_said(caplog):
    check_offsets("g", "features", {0: 3, 1: 8}, {0: (5, 9), 1: (8, 8)})
    assert ["records 3 to 4 of partition 0" in each.getMessage() for each in caplog.records] == [
        True
    ]


def test_a_changelog_of_another_partition_count_is_said(monkeypatch):
    found = {"features": [1, 1], "g-log-changelog": [1]}
    with pytest.raises(TunnelError, match=r"has 1 partitions .* delete the group 'g'"):
        look(monkeypatch, found, tables=["log"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("cleanup.policy", "delete"), "cleanup.policy=delete"),
        (("cleanup.policy", "compact,delete"), "cleanup.policy=compact,delete"),
        (("max.message.bytes", "1000"), "max.message.bytes=1000"),
        (("max.message.bytes", "2000000"), ""),
        (("retention.ms", "1"), ""),
    ],
)
def test_a_changelog_that_would_lose_rows_is_said(monkeypatch, settings, said):
    monkeypatch.setattr(Admin, "settings", (0, (*settings, 0)))
    found = {"features": [1], "g-log-changelog": [1]}
    if said:
        with pytest.raises(TopicError, match=f"'g-log-changelog' has {re.escape(said)}, so it"):
            look(monkeypatch, found, tables=["log"])
        # not ours to see
        monkeypatch.setattr(Admin, "settings", (29, (*settings, 0)))
    assert look(monkeypatch, found, tables=["log"]) == TopicShape(1, 1)


def test_a_topic_that_is_not_there_is_said(monkeypatch):
    with pytest.raises(TunnelError, match="is not on") as caught:
        look(monkeypatch, {"other": [1]})
    assert caught.value.exit_code == 13


def test_what_refuses_tls_is_said_before_aiokafka_tries(tmp_path):
    part = KafkaPart(brokers="127.0.0.1:9092", topic="t", tls={"ca": tmp_path / "none.pem"})
    with pytest.raises(BrokerUnreachableError, match=r"none\.pem: correct `tls\.ca`"):
        asyncio.run(look_at_topic(part))


def test_a_broker_that_does_not_answer_is_said_once(monkeypatch):
    class Deaf:
        def __init__(self, **_options):
            pass

        async def start(self):
            raise KafkaConnectionError("refused")

        async def stop(self):
            pass

    monkeypatch.setattr(preflight, "AIOKafkaConsumer", Deaf)
    monkeypatch.setattr(preflight, "probe_brokers", lambda _part: None)
    with pytest.raises(BrokerUnreachableError) as raised:
        asyncio.run(look_at_topic(PART))
    assert str(raised.value).count("no broker answers") == 1


@pytest.mark.parametrize(
    ("host", "is_taken"), [("nowhere.invalid", False), ("x" * 300, False), ("127.0.0.1", True)]
)
def test_an_address_that_cannot_be_listened_at_is_one_line(host, is_taken):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if is_taken else 80
        with pytest.raises(MetricsAddressError, match="look-ups cannot be answered"):
            check_address(host, port)
