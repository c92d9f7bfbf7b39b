from walle_stream.tunnel.session import UplinkSession
from walle_stream.wire.envelope import decode_uplink


class FakeUplink:
    def __init__(self):
        self.sent, self.acknowledged = [], []

    def send(self, frames):
        self.sent += [(*each[:2], decode_uplink(each[2])) for each in frames]

    def acks(self, _partition):
        found, self.acknowledged = self.acknowledged, []
        return found


def make(outbox=()):
    uplink = FakeUplink()
    return uplink, UplinkSession(uplink, 3, 7, "ab" * 8, outbox)


def test_the_outbox_is_sent_again_with_the_new_epoch():
    uplink, session = make([(4, b"four"), (5, b"five")])
    assert [(p, n, e.epoch, e.body) for p, n, e in uplink.sent] == [
        (3, 4, 7, b"four"),
        (3, 5, 7, b"five"),
    ]
    assert session.in_flight_bytes == sum(session.size_bytes(b) for b in (b"four", b"five"))


def test_an_acknowledged_frame_is_collected_once():
    uplink, session = make()
    session.send([session.frame(1, b"one")])
    session.send([session.frame(2, b"two")])
    uplink.acknowledged = [1]
    assert session.collect() == [1]
    assert session.collect() == []
    assert session.in_flight_bytes == session.size_bytes(b"two")


def test_flush_says_whether_everything_arrived():
    uplink, session = make()
    session.send([session.frame(1, b"one")])
    assert not session.flush(0.0)
    uplink.acknowledged = [1]
    assert session.flush(0.0)
