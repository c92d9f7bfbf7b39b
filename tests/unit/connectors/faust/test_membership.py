"""Until when a worker may answer of its devices."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest

from walle_connectors.faust.membership import Membership

HEARTBEAT = HeartbeatRequest("g", 1, "m")


class Coordinator:
    """Answers with an error code, or raises; the clock goes on meanwhile."""

    def __init__(self):
        self.now_ms, self.error, self.takes_ms = 0.0, 0, 0.0

    async def _send_req(self, _request):
        self.now_ms += self.takes_ms
        if isinstance(self.error, Exception):
            raise self.error
        return SimpleNamespace(error_code=self.error)

    def send(self, request=HEARTBEAT):
        asyncio.run(self._send_req(request))


@pytest.fixture
def broker():
    return Coordinator()


@pytest.fixture
def member(broker):
    member = Membership(10_000, lambda: broker.now_ms)
    member.watch(broker)
    member.watch(broker)
    return member


def test_nobody_is_a_member_before_he_is_told_so(broker, member):
    assert not member.is_held
    broker.send(SyncGroupRequest("g", 1, "m", None, []))
    assert member.is_held


def test_a_heartbeat_counts_from_when_it_was_sent(broker, member):
    broker.takes_ms = 4_000
    broker.send()
    broker.now_ms = 9_999
    assert member.is_held
    broker.now_ms = 10_000
    assert not member.is_held


def test_one_that_is_not_answered_does_not_count(broker, member):
    broker.send()
    broker.now_ms, broker.error = 8_000, ConnectionError()
    with pytest.raises(ConnectionError):
        broker.send()
    assert member.is_held
    broker.now_ms = 10_000
    assert not member.is_held
    # the network is there again
    broker.error = 0
    broker.send()
    assert member.is_held


@pytest.mark.parametrize(("error", "is_held"), [(22, False), (25, False), (16, False), (27, True)])
def test_what_the_broker_says_counts_at_once(broker, member, error, is_held):
    broker.send()
    broker.error = error
    broker.send()
    assert member.is_held is is_held


def test_who_leaves_is_none(broker, member):
    broker.send()
    broker.send(LeaveGroupRequest("g", "m"))
    assert not member.is_held
