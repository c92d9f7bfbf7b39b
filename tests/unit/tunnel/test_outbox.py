"""What an outbox that grows drops, what it never drops, and what its owner is told."""

from threading import Event, Thread

import pytest

from walle_stream.errors import TunnelClosedError
from walle_stream.tunnel import outbox
from walle_stream.tunnel.outbox import LimitedTunnel, OutboxPolicy, Shed
from walle_stream.tunnel.session import UplinkSession
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, decode_uplink, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body

WAIT_S = 30
SIZE = 1_000


class Down:
    """A tunnel that acknowledges what it is told to."""

    def __init__(self):
        self.sent, self.arrived, self.is_closed, self.is_relaxed = [], {}, False, False
        self.downlink = object()

    def send(self, frames):
        self.sent += [(partition, number) for partition, number, _ in frames]

    def acks(self, partition):
        return self.arrived.pop(partition, ())

    def relax(self):
        self.is_relaxed = True

    def close(self):
        self.is_closed = True


def frame(number, *times, size=SIZE, partition=0):
    times = times or (number,)
    features = [
        FeatureRecord("d", "t", "1", number * 10 + place, b"{}", b"", time)
        for place, time in enumerate(times)
    ]
    envelope = UplinkEnvelope(partition, 1, "ab" * 8, number, encode_body(features, "none"))
    missing = size - len(encode_uplink(envelope))
    features[0].encoding = bytes(missing - 1 if missing > 250 else missing)
    envelope.body = encode_body(features, "none")
    return encode_uplink(envelope)


def call(number):
    calls = [CloudCall("d", number, "t", "1", "s", bytes(SIZE - 100))]
    [body] = encode_calls(calls, "none")
    return encode_uplink(UplinkEnvelope(0, 1, "ab" * 8, number, body))


def limited(frames, window=1, **policy):
    down = Down()
    tunnel = LimitedTunnel(down, OutboxPolicy(frames * (SIZE + 10), **policy))
    tunnel._window_bytes = window * (SIZE + 10)
    return down, tunnel


def test_a_policy_that_drops_nothing_is_none():
    assert not OutboxPolicy(1).drops
    assert OutboxPolicy(1, drops_oldest=True).drops
    assert OutboxPolicy(1, max_age_ms=1_000).drops


def test_the_oldest_that_have_not_left_make_room():
    down, tunnel = limited(3, drops_oldest=True)
    for number in range(1, 7):
        tunnel.send([(0, number, frame(number, number, number))])
    assert down.sent == [(0, 1)]
    assert tunnel.shed(0, 0) == [Shed(2, 2), Shed(3, 2), Shed(4, 2)]
    assert tunnel.shed(0, 0) == []
    for number in (1, 5, 6):
        down.arrived[0] = [number]
        assert list(tunnel.acks(0)) == [number]
    assert down.sent == [(0, 1), (0, 5), (0, 6)]
    assert tunnel._waiting_bytes == tunnel._in_flight_bytes == 0


def test_the_oldest_of_all_partitions_goes_first():
    _, tunnel = limited(3, drops_oldest=True)
    for partition, number in [(0, 1), (1, 1), (2, 1), (1, 2), (1, 3)]:
        tunnel.send([(partition, number, frame(number, partition=partition))])
    assert [tunnel.shed(partition, 0) for partition in range(3)] == [[], [Shed(1, 1)], [Shed(1, 1)]]


def test_a_frame_larger_than_all_drops_what_waits_and_goes_when_alone():
    down, tunnel = limited(2, drops_oldest=True)
    tunnel.send([(0, 1, frame(1))])
    down.arrived[0] = [1]
    tunnel.acks(0)
    tunnel.send([(0, 2, frame(2, size=9 * SIZE))])
    assert down.sent == [(0, 1), (0, 2)]


def test_calls_are_never_dropped_and_their_sender_waits():
    down, tunnel = limited(3, drops_oldest=True)
    tunnel.send([(0, 1, call(1))])
    tunnel.send([(0, 2, call(2))])
    tunnel.send([(0, 3, frame(3))])
    tunnel.send([(0, 4, call(4))])
    assert tunnel.shed(0, 10**9) == [Shed(3, 1)]
    sender = Thread(target=tunnel.send, args=([(0, 5, call(5))],))
    sender.start()
    assert sender.is_alive()
    down.arrived[0] = [1]
    sender.join(WAIT_S)
    assert not sender.is_alive()
    assert tunnel.shed(0, 0) == []


def test_what_is_too_old_is_dropped_when_its_newest_feature_is():
    down, tunnel = limited(9, max_age_ms=1_000)
    for number, times in enumerate([(1,), (2, 500), (3, 1_500), (4,), (-1,)], 1):
        tunnel.send([(0, number, frame(number, *times))])
    assert tunnel.shed(0, 1_500) == []  # the first has left
    assert tunnel.shed(0, 1_501) == [Shed(2, 2)]
    assert tunnel.shed(0, 2_500) == []
    assert tunnel.shed(0, 2_501) == [Shed(3, 2), Shed(4, 1)]
    assert tunnel.shed(0, 10**9) == []  # whose time is not known
    assert down.sent == [(0, 1)]


def test_an_age_alone_lets_the_sender_wait_for_room():
    down, tunnel = limited(2, max_age_ms=1_000)
    tunnel.send([(0, 1, frame(1))])
    tunnel.send([(1, 1, frame(1, partition=1))])
    sender = Thread(target=tunnel.send, args=([(1, 2, frame(2, partition=1))],))
    sender.start()
    down.arrived[0] = [1]  # of another partition, which nobody asks about
    sender.join(WAIT_S)
    assert not sender.is_alive()
    assert list(tunnel.acks(0)) == [1]
    assert down.sent == [(0, 1), (1, 1)]


def test_a_run_that_ends_waits_for_no_room_and_leaves_no_hole():
    down, tunnel = limited(1, max_age_ms=1_000)
    tunnel.send([(0, 1, frame(1))])
    sender = Thread(target=tunnel.send, args=([(0, 2, frame(2))],))
    sender.start()
    tunnel.relax()
    sender.join(WAIT_S)
    assert not sender.is_alive()
    assert down.is_relaxed
    down.arrived[0] = [1]
    assert list(tunnel.acks(0)) == [1]
    tunnel.send([(0, 3, frame(3))])  # there would be room
    tunnel.send([(1, 1, frame(1))])
    assert down.sent == [(0, 1), (1, 1)]


def test_a_sender_that_waits_learns_that_the_tunnel_was_closed():
    down, tunnel = limited(1, max_age_ms=1_000)
    tunnel.send([(0, 1, frame(1))])
    refused, began = [], Event()

    def send():
        began.set()
        try:
            tunnel.send([(0, 2, frame(2))])
        except TunnelClosedError as error:
            refused.append(str(error))

    sender = Thread(target=send)
    sender.start()
    began.wait(WAIT_S)
    tunnel.close()
    sender.join(WAIT_S)
    assert "frame 2 of partition 0 stays in the outbox" in refused[0]
    assert down.is_closed


def test_a_partition_that_is_opened_anew_sends_its_outbox_once_more():
    down, tunnel = limited(3, drops_oldest=True)
    for number in range(1, 6):
        tunnel.send([(0, number, frame(number))])
    # 2 and 3 were dropped, but no commit has said so
    for number in range(1, 6):
        tunnel.send([(0, number, frame(number))])
    dropped = tunnel.shed(0, 0)
    sent = [number for _, number in down.sent]
    while tunnel._in_flight_bytes:
        down.arrived[0] = [down.sent[-1][1]]
        tunnel.acks(0)
        sent = [number for _, number in down.sent]
    assert {*sent, *(each.number for each in dropped)} == {1, 2, 3, 4, 5}
    assert sent[-1] == 5
    assert not set(sent[1:]) & {each.number for each in dropped}
    assert tunnel._waiting_bytes == 0


def test_the_log_tells_of_drops_once_a_minute_and_at_the_end(monkeypatch, caplog):
    now_ms = [10**6]
    monkeypatch.setattr(outbox, "monotonic_ms", lambda: now_ms[0])
    _, tunnel = limited(2, drops_oldest=True)

    def drop(number):
        tunnel.send([(0, number, frame(number, number, number))])
        tunnel.shed(0, 0)
        return [record.getMessage() for record in caplog.records]

    assert drop(1) == drop(2) == []
    assert drop(3)[0].startswith("2 features in 1 frames will not be sent")
    assert len(drop(4)) == len(drop(5)) == 1
    now_ms[0] += outbox.TELL_MS
    assert drop(6)[1].startswith("6 features in 3 frames")
    drop(7)
    tunnel.close()
    assert caplog.records[2].getMessage().startswith("2 features in 1 frames")


def test_a_session_counts_what_was_dropped_as_gone():
    down, tunnel = limited(2, drops_oldest=True)
    session = UplinkSession(tunnel, 0, 1, "ab" * 8)
    bodies = [decode_uplink(frame(number)).body for number in range(1, 5)]
    for number, body in enumerate(bodies, 1):
        session.send([session.frame(number, body)])
    assert [each.number for each in session.shed(0)] == [2, 3]
    assert session.in_flight_bytes == session.size_bytes(bodies[0]) + session.size_bytes(bodies[3])
    down.arrived[0] = [1]
    assert session.collect() == [1]
    down.arrived[0] = [4]
    assert session.flush(0.0)
    assert UplinkSession(down, 0, 1, "ab" * 8).shed(10**9) == []


@pytest.mark.parametrize("data", [b"", b"U" * 60, frame(1)[:-5]])
def test_what_is_no_frame_is_left_to_its_receiver(data):
    down, tunnel = limited(2, drops_oldest=True, max_age_ms=1_000)
    tunnel.send([(0, 1, data)])
    assert down.sent == [(0, 1)]
