"""Conformance suite for tunnels, as device hosts and the cloud side use them.

Subclass ``TunnelSuite`` and implement ``open_tunnel``. A tunnel here is an object with
``send``/``acks``/``close`` (``Uplink``), ``downlink`` (``Downlink``), ``downlink_sender``
(``DownlinkSender``) and a ``receiver``. ``receiver.receive(position, max_bytes)`` returns the
frames after a position as (position, envelope), at least one if there is one, and never waits.
``receiver.release(position)`` allows the tunnel to forget frames up to a position.

The tests send real envelopes and compare the records in them, since a tunnel may keep frames whole
or split them into records and combine these differently. Neither direction promises immediate
delivery, so the tests wait for it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest

from walle_stream.clock import monotonic_ms
from walle_stream.errors import TunnelClosedError
from walle_stream.wire.calls import CloudCall, decode_calls, encode_calls
from walle_stream.wire.envelope import (
    DownlinkEnvelope,
    UplinkEnvelope,
    decode_downlink,
    decode_uplink,
    encode_downlink,
    encode_uplink,
)
from walle_stream.wire.frame import FeatureRecord, decode_body, encode_body

PARTITIONS: Final = 5
"""Number of partitions from which the tests send."""

_WAIT_MS: Final = 60_000
_POLL_S: Final = 0.01
_INCARNATION: Final = "0123456789abcdef"
_MANY: Final = 200

type _Sent = tuple[int, int, str, int, str]  # partition, epoch, device, number, "n" or question


class TunnelSuite(ABC):
    """Tests that every tunnel must pass; each opens its own tunnel in ``tmp_path``."""

    @abstractmethod
    def open_tunnel(self, path: Path, max_bytes: int) -> Any:
        """Open the tunnel under test, which is created if missing.

        Args:
            path: Folder of the tunnel; equal folders mean the same tunnel.
            max_bytes: Limit of the frames that are not released yet.
        """

    def test_records_arrive_in_the_order_of_their_sending(self, tmp_path: Path) -> None:
        """Each partition keeps its order, and every record arrives once."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(1, _MANY + 1):
            tunnel.send([(number % 3, number, _frame(number % 3, number))])
        found = _drain(tunnel, _MANY)
        for partition in range(3):
            own = [record[3] for record in found if record[0] == partition]
            assert own == [n for n in range(1, _MANY + 1) if n % 3 == partition]
        tunnel.close()

    def test_what_a_frame_says_of_its_records_arrives(self, tmp_path: Path) -> None:
        """Sender, epoch, device, task, event time and encoding arrive unchanged."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        records = [
            FeatureRecord("gerät", "ipv", "3", 7, b'{"a":[1,{"b":null}]}', b"\x00\xff", 1_700),
            FeatureRecord("gerät", "intent", "1", 8, b"{}", b"", -1),
            FeatureRecord("b", "ipv", "3", 1, b'{"c":0.25}', b"e", 2**41),
        ]
        for number, epoch in enumerate((3, 2**40), 1):
            body = encode_body(records, "zstd")
            envelope = UplinkEnvelope(4, epoch, _INCARNATION, number, body)
            tunnel.send([(4, number, encode_uplink(envelope))])
        frames = _frames(tunnel, 6)
        assert {(each.partition, each.incarnation) for each in frames} == {(4, _INCARNATION)}
        found = [(each.epoch, one) for each in frames for one in decode_body(each.body)]
        assert found == [(epoch, record) for epoch in (3, 2**40) for record in records]
        tunnel.close()

    def test_calls_travel_beside_features(self, tmp_path: Path) -> None:
        """Calls have their own frames and numbers, and a partition keeps the order of sending."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        calls = [CloudCall("a", n, "t", "1", "ask", b'{"q":%d}' % n) for n in (1, 2)]
        [body] = encode_calls(calls, "zstd")
        tunnel.send([(1, 1, _frame(1, 1))])
        tunnel.send([(1, 2, encode_uplink(UplinkEnvelope(1, 1, _INCARNATION, 2, body)))])
        tunnel.send([(1, 3, _frame(1, 2))])
        found = _drain(tunnel, 4)
        assert [record[3:] for record in found] == [(1, "1"), (1, "ask"), (2, "ask"), (2, "2")]
        tunnel.close()

    def test_every_frame_is_acknowledged_once(self, tmp_path: Path) -> None:
        """An acknowledgement names the partition's own frames, in their order."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(10):
            tunnel.send([(number % 2, number, _frame(number % 2, number + 1))])
        assert _acks(tunnel, 0, 5) == [0, 2, 4, 6, 8]
        assert _acks(tunnel, 1, 5) == [1, 3, 5, 7, 9]
        assert list(tunnel.acks(0)) == []
        tunnel.close()

    def test_a_frame_without_records_is_acknowledged(self, tmp_path: Path) -> None:
        """An empty frame must not block its sender for ever."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        empty = encode_uplink(UplinkEnvelope(0, 1, _INCARNATION, 1, encode_body([], "zstd")))
        tunnel.send([(0, 1, empty)])
        tunnel.send([(0, 2, _frame(0, 1))])
        assert _acks(tunnel, 0, 2) == [1, 2]
        tunnel.close()

    def test_what_was_acknowledged_survives_a_new_opening(self, tmp_path: Path) -> None:
        """Records that are not released come again, after the requested positions."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(1, 6):
            tunnel.send([(0, number, _frame(0, number))])
            assert _acks(tunnel, 0, 1) == [number]
        tunnel.close()
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        assert [record[3] for record in _drain(tunnel, 5)] == [1, 2, 3, 4, 5]
        position, _ = _receive(tunnel, 0, 1)[0]
        rest = 5 - len(_records(_receive(tunnel, 0, 1)[:1]))
        found = _drain(tunnel, rest, position)
        assert [record[3] for record in found] == list(range(6 - rest, 6))
        tunnel.close()

    def test_positions_go_on_after_everything_was_released(self, tmp_path: Path) -> None:
        """A reader that remembers its position misses nothing."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        tunnel.send([(0, 1, _frame(0, 1))])
        position, _ = _receive(tunnel, 0, 1 << 20)[-1]
        tunnel.receiver.release(position)
        tunnel.close()
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        tunnel.send([(0, 2, _frame(0, 2))])
        assert [record[3] for record in _drain(tunnel, 1, position)] == [2]
        tunnel.close()

    def test_a_sender_waits_while_too_much_is_on_its_way(self, tmp_path: Path) -> None:
        """Back-pressure counts bytes; a single frame larger than the limit still passes."""
        tunnel = self.open_tunnel(tmp_path / "t", 100)
        tunnel.send([(0, 1, _frame(0, 1, 500))])
        sender = Thread(target=tunnel.send, args=([(0, 2, _frame(0, 2))],))
        sender.start()
        position, _ = _receive(tunnel, 0, 1)[0]
        tunnel.receiver.release(position)
        sender.join(_WAIT_MS / 1000)
        assert not sender.is_alive()
        assert [record[3] for record in _drain(tunnel, 1, position)] == [2]
        tunnel.close()

    def test_frames_sent_together_wait_for_room_one_by_one(self, tmp_path: Path) -> None:
        """The limit also holds within one ``send``; all frames arrive in order."""
        tunnel = self.open_tunnel(tmp_path / "t", 1_200)
        together = [(0, number, _frame(0, number, 500)) for number in range(1, 8)]
        sender = Thread(target=tunnel.send, args=(together,))
        sender.start()
        found: list[int] = []
        position = 0
        while len(found) < len(together):
            frames = _receive(tunnel, position, 1)
            found += [record[3] for record in _records(frames)]
            position = frames[-1][0]
            tunnel.receiver.release(position)
            tunnel.acks(0)
        sender.join(_WAIT_MS / 1000)
        assert found == [number for _, number, _ in together]
        tunnel.close()

    def test_a_closed_tunnel_refuses_and_wakes_waiting_senders(self, tmp_path: Path) -> None:
        """No sender waits for ever on a closed tunnel."""
        tunnel = self.open_tunnel(tmp_path / "t", 100)
        refused: list[TunnelClosedError] = []

        def send() -> None:
            try:
                # enough to block, even if the tunnel counts only unacknowledged frames
                for number in range(1, 1 << 30):
                    tunnel.send([(0, number, _frame(0, number, 500))])
            except TunnelClosedError as error:
                refused.append(error)

        sender = Thread(target=send)
        sender.start()
        _acks(tunnel, 0, 1)
        tunnel.close()
        sender.join(_WAIT_MS / 1000)
        assert len(refused) == 1
        with pytest.raises(TunnelClosedError):
            tunnel.send([(0, 3, _frame(0, 3))])

    def test_a_read_gives_at_least_one_frame_and_respects_the_bound(self, tmp_path: Path) -> None:
        """A read is limited in bytes, but never stuck on a large frame."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(1, 11):
            tunnel.send([(0, number, _frame(0, number, 1_000))])
            _acks(tunnel, 0, 1)
        assert len(_records(_receive(tunnel, 0, 1))) == 1
        assert len(_drain(tunnel, 10)) == 10  # noqa: PLR2004 - all sent records
        found = _receive(tunnel, 0, 2_500)
        assert 1 <= len(_records(found)) < 5  # noqa: PLR2004 - up to the limit and one more
        tunnel.close()

    def test_messages_reach_their_partition_in_order(self, tmp_path: Path) -> None:
        """Messages go down in order, even after a reopening, and each is acknowledged."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        sent = [
            DownlinkEnvelope("a", "k", b"1", "s", 1),
            DownlinkEnvelope("", "k", b"2", "s", 2),
            DownlinkEnvelope("a", "k", b"3"),
        ]
        frames = [(3, n, encode_downlink(each)) for n, each in enumerate(sent, 1)]
        sender = tunnel.downlink_sender
        sender.send(frames[:2])
        _acks(sender, 3, 2)
        tunnel.close()
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        sender = tunnel.downlink_sender
        sender.send([*frames[2:], (4, 1, frames[0][2])])
        assert _acks(sender, 3, 1) == [3]
        messages = _wait(lambda: _full(tunnel.downlink.receive(3, 0, 1 << 20), 3))
        assert [decode_downlink(data) for _, data in messages] == sent
        tunnel.downlink.release(3, messages[1][0])
        assert tunnel.downlink.receive(3, messages[1][0], 1 << 20) == messages[2:]
        tunnel.close()


def _frame(partition: int, number: int, size: int = 1) -> bytes:
    # a frame of one record with the same number
    text = json.dumps({"n": str(number), "x": "x" * size})
    device = f"d{partition}"
    record = FeatureRecord(device, "t", "1", number, text.encode(), b"", number)
    body = encode_body([record], "none")
    return encode_uplink(UplinkEnvelope(partition, 1, _INCARNATION, number, body))


def _records(frames: Iterable[tuple[int, bytes]]) -> list[_Sent]:
    found: list[_Sent] = []
    for _, data in frames:
        frame = decode_uplink(data)
        calls = decode_calls(frame.body)
        head = frame.partition, frame.epoch
        if calls is None:
            for record in decode_body(frame.body):
                what = str(json.loads(record.feature).get("n"))
                found.append((*head, record.device_id, record.sequence_number, what))
        else:
            found += [(*head, call.device_id, call.number, call.service) for call in calls]
    return found


def _wait[T](look: Callable[[], T]) -> T:
    # until ``look`` returns something, or the deadline
    deadline_ms = monotonic_ms() + _WAIT_MS
    tick = Event()
    while not (found := look()) and monotonic_ms() < deadline_ms:
        tick.wait(_POLL_S)
    return found


def _full[T](found: Sequence[T], count: int) -> Sequence[T]:
    return found if len(found) >= count else ()


def _receive(tunnel: Any, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
    return _wait(lambda: tunnel.receiver.receive(position, max_bytes))


def _collect(tunnel: Any, count: int, position: int = 0) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(_records(found)) < count and (frames := _receive(tunnel, position, 64)):
        found += frames
        position = frames[-1][0]
    return found


def _drain(tunnel: Any, count: int, position: int = 0) -> list[_Sent]:
    return _records(_collect(tunnel, count, position))


def _frames(tunnel: Any, count: int) -> list[UplinkEnvelope]:
    return [decode_uplink(data) for _, data in _collect(tunnel, count)]


def _acks(tunnel: Any, partition: int, count: int) -> list[int]:
    found: list[int] = []

    def look() -> bool:
        found.extend(tunnel.acks(partition))
        return len(found) >= count

    _wait(look)
    return found
