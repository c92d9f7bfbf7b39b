"""What the look at a broker says of topics; the broker is a dictionary."""

import asyncio
import logging
import socket
from types import SimpleNamespace

import pytest

pytest.importorskip("faust")

from aiohttp.http_exceptions import LineTooLong
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError

from walle_connectors.faust import preflight
from walle_connectors.faust.assembly import _expect_address
from walle_connectors.faust.preflight import TopicShape, look_at_topic
from walle_connectors.faust.settings import KafkaPart
from walle_connectors.faust.worker import set_up_logging
from walle_stream.errors import BrokerUnreachableError, TunnelError

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

    async def stop(self):
        pass


def look(monkeypatch, *answers, changelogs=()):
    async def connect(_part):
        return Consumer(*answers)

    monkeypatch.setattr(preflight, "connect", connect)
    return asyncio.run(look_at_topic(PART, changelogs))


def test_a_topic_that_nobody_leads_yet_is_waited_for(monkeypatch):
    starting, there = {"features": [-1, 1]}, {"features": [1, 1]}
    assert look(monkeypatch, starting, starting, there) == TopicShape(2, 1)


def test_so_are_changelogs(monkeypatch):
    starting = {"features": [1, 1], "log": [-1, -1]}
    there = {"features": [1, 1], "log": [1, 1]}
    assert look(monkeypatch, starting, there, changelogs=["log"]) == TopicShape(2, 1)


def test_a_topic_that_is_not_there_is_said(monkeypatch):
    with pytest.raises(TunnelError, match="is not on") as caught:
        look(monkeypatch, {"other": [1]})
    assert caught.value.exit_code == 13


def test_what_refuses_tls_is_said_before_aiokafka_tries(tmp_path):
    part = KafkaPart(brokers="127.0.0.1:9092", topic="t", tls={"ca": tmp_path / "none.pem"})
    with pytest.raises(BrokerUnreachableError, match=r"none\.pem: correct `tls\.ca`"):
        asyncio.run(look_at_topic(part))


def test_a_broker_that_goes_away_is_no_traceback(caplog):
    set_up_logging("warning")
    for error in (KafkaConnectionError("reset"), NodeNotReadyError("1"), ValueError("a bug")):
        try:
            raise error
        except Exception:
            logging.getLogger("faust.worker").exception("failed")
    assert [each.exc_info[0] for each in caplog.records] == [ValueError]


def test_what_is_no_request_is_one_line_in_the_log(caplog):
    set_up_logging("warning")
    try:
        raise LineTooLong("GET /xxx")
    except LineTooLong:
        logging.getLogger("aiohttp.server").exception("Error handling request")
    assert [each.getMessage() for each in caplog.records] == ["a request is refused: LineTooLong"]
    assert "Traceback" not in caplog.text


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
        with pytest.raises(TunnelError, match="look-ups cannot be answered"):
            _expect_address(host, port)
