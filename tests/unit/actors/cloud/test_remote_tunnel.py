"""A host's ends of the tunnel, over links to a real log."""

from threading import Condition

import pytest

from walle_connectors.embedded.log import EmbeddedTunnel
from walle_stream.actors.cloud.remote_tunnel import IN_FLIGHT_MAX, RemoteDownlink, RemoteUplink
from walle_stream.errors import TunnelClosedError

pytestmark = pytest.mark.actors


class Link:
    """Calls the tunnel directly; lets calls up pass when it is told to."""

    def __init__(self, tunnel):
        self.tunnel, self.condition = tunnel, Condition()
        self.passes, self.calls, self.is_lost = 10**6, [], False

    def append(self, frames):
        with self.condition:
            self.calls.append(len(frames))
            self.condition.notify_all()
            assert self.condition.wait_for(lambda: self.passes > 0 or self.is_lost, 30)
            self.passes -= 1
        if self.is_lost:
            raise TunnelClosedError("lost")
        self.tunnel.send(frames)

    def let_pass(self, count):
        with self.condition:
            self.passes = count
            self.condition.notify_all()

    def messages(self, wanted):
        found = {}
        for partition, (position, released) in wanted.items():
            self.tunnel.release_down(partition, released)
            found[partition] = self.tunnel.receive_down(partition, position, 10**6)
        return found


@pytest.fixture
def tunnel(tmp_path):
    opened = EmbeddedTunnel(tmp_path / "t", 10**6)
    yield opened
    opened.close()


def wait_for_acks(uplink, partition, count):
    found = []
    while len(found) < count:
        found += uplink.acks(partition)
    return found


def test_frames_arrive_in_order_and_are_acknowledged(tunnel):
    uplink = RemoteUplink(Link(tunnel))
    for number in range(50):
        uplink.send([(number % 2, number, b"%d" % number)])
    assert wait_for_acks(uplink, 0, 25) == list(range(0, 50, 2))
    assert wait_for_acks(uplink, 1, 25) == list(range(1, 50, 2))
    frames = tunnel.receiver.receive(0, 10**6)
    assert [frame for _, frame in frames] == [b"%d" % number for number in range(50)]
    uplink.close()


def test_no_more_frames_are_in_flight_than_allowed(tunnel):
    link = Link(tunnel)
    link.let_pass(0)
    uplink = RemoteUplink(link)
    for number in range(IN_FLIGHT_MAX):
        uplink.send([(0, number, b"x")])
    assert uplink._in_flight == IN_FLIGHT_MAX
    assert list(uplink.acks(0)) == []
    link.let_pass(100)
    uplink.send([(0, IN_FLIGHT_MAX, b"x")])  # waits for room
    assert wait_for_acks(uplink, 0, IN_FLIGHT_MAX + 1) == list(range(IN_FLIGHT_MAX + 1))
    assert max(link.calls) <= IN_FLIGHT_MAX
    uplink.close()


def test_idle_is_when_all_is_acknowledged_or_lost(tunnel):
    link = Link(tunnel)
    link.let_pass(0)
    uplink = RemoteUplink(link)
    assert uplink.await_idle(0.0)
    uplink.send([(0, 1, b"x")])
    assert not uplink.await_idle(0.0)
    link.let_pass(1)
    assert uplink.await_idle(30.0)
    assert list(uplink.acks(0)) == [1]
    link.is_lost = True
    uplink.send([(0, 2, b"x")])
    assert uplink.await_idle(30.0)
    assert list(uplink.acks(0)) == []


def test_a_sender_learns_that_the_link_is_lost(tunnel):
    link = Link(tunnel)
    link.is_lost = True
    uplink = RemoteUplink(link)

    def send_too_many():
        for number in range(IN_FLIGHT_MAX + 1):
            uplink.send([(3, number, b"x")])

    with pytest.raises(TunnelClosedError, match="in the outbox"):
        send_too_many()
    assert list(uplink.acks(3)) == []


def test_messages_are_fetched_ahead_and_forgotten_when_released(tunnel):
    downlink = RemoteDownlink(Link(tunnel))
    downlink.close()  # the test looks itself
    tunnel.send_down([(1, 1, b"m")])
    tunnel.send_down([(1, 2, b"m")])
    assert downlink.receive(1, 0, 10**6) == ()  # known from now on
    downlink.step()
    found = downlink.receive(1, 0, 10**6)
    assert [position for position, _ in found] == [1, 2]
    assert [position for position, _ in downlink.receive(1, 0, 1)] == [1]
    # not committed: the same again; committed: the rest
    assert downlink.receive(1, 0, 10**6) == found
    assert downlink.receive(1, 1, 10**6) == found[1:]
    downlink.release(1, 2)
    downlink.step()
    assert downlink.receive(1, 2, 10**6) == []
    assert [position for position, _ in tunnel.receive_down(1, 0, 10**6)] == [2]
