"""Conformance of tunnels: what device hosts and the cloud side rely on.

Subclass ``TunnelSuite`` and give ``open_tunnel``; a tunnel here is an object
with ``send``/``acks``/``close`` (``Uplink``), ``receiver`` (``UplinkReceiver``),
``downlink`` (``Downlink``) and ``downlink_sender`` (``DownlinkSender``).
"""

from abc import ABC, abstractmethod
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from walle_stream.errors import TunnelClosedError
from walle_stream.wire.envelope import decode_downlink

_MANY = 200


class TunnelSuite(ABC):
    """The cases; each opens its own tunnel in ``tmp_path``."""

    @abstractmethod
    def open_tunnel(self, path: Path, max_bytes: int) -> Any:
        """Open the tunnel under test, making it if it is not there.

        Args:
            path: An own folder; the same one means the same tunnel.
            max_bytes: Bound of the frames not yet released.
        """

    def test_frames_arrive_in_the_order_of_their_sending(self, tmp_path: Path) -> None:
        """Order per partition, and every frame once."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(_MANY):
            tunnel.send(number % 3, number, b"%d" % number)
        frames = self._drain(tunnel)
        for partition in range(3):
            own = [int(frame) for frame in frames if int(frame) % 3 == partition]
            assert own == sorted(own)
        assert len(frames) == _MANY
        tunnel.close()

    def test_every_frame_is_acknowledged_once(self, tmp_path: Path) -> None:
        """An acknowledgement names the partition's own frames."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(10):
            tunnel.send(number % 2, number, b"x")
        assert sorted(tunnel.acks(0)) == [0, 2, 4, 6, 8]
        assert list(tunnel.acks(0)) == []
        assert sorted(tunnel.acks(1)) == [1, 3, 5, 7, 9]
        tunnel.close()

    def test_what_was_acknowledged_survives_a_new_opening(self, tmp_path: Path) -> None:
        """Frames not released come again, behind the position asked for."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(5):
            tunnel.send(0, number, b"%d" % number)
        first = tunnel.receiver.receive(0, 1 << 20)
        tunnel.close()
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        assert tunnel.receiver.receive(0, 1 << 20) == first
        assert tunnel.receiver.receive(first[2][0], 1 << 20) == first[3:]
        tunnel.close()

    def test_positions_go_on_after_everything_was_released(self, tmp_path: Path) -> None:
        """A reader that remembers its position misses nothing."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        tunnel.send(0, 1, b"old")
        position = tunnel.receiver.receive(0, 1 << 20)[-1][0]
        tunnel.receiver.release(position)
        tunnel.close()
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        tunnel.send(0, 2, b"new")
        assert [frame for _, frame in tunnel.receiver.receive(position, 1 << 20)] == [b"new"]
        tunnel.close()

    def test_a_sender_waits_while_too_much_is_unreleased(self, tmp_path: Path) -> None:
        """Back-pressure in bytes; one frame larger than the bound still passes."""
        tunnel = self.open_tunnel(tmp_path / "t", 100)
        tunnel.send(0, 1, b"x" * 500)
        sender = Thread(target=tunnel.send, args=(0, 2, b"y"))
        sender.start()
        position, frame = tunnel.receiver.receive(0, 1 << 20)[0]
        assert len(frame) == 500  # noqa: PLR2004 - as sent
        tunnel.receiver.release(position)
        sender.join(30)
        assert not sender.is_alive()
        assert [frame for _, frame in tunnel.receiver.receive(position, 1 << 20)] == [b"y"]
        tunnel.close()

    def test_a_closed_tunnel_refuses_and_wakes_waiting_senders(self, tmp_path: Path) -> None:
        """Nobody waits for ever on a tunnel that is gone."""
        tunnel = self.open_tunnel(tmp_path / "t", 100)
        tunnel.send(0, 1, b"x" * 500)
        refused: list[TunnelClosedError] = []

        def send() -> None:
            try:
                tunnel.send(0, 2, b"y")
            except TunnelClosedError as error:
                refused.append(error)

        sender = Thread(target=send)
        sender.start()
        tunnel.close()
        sender.join(30)
        assert len(refused) == 1
        with pytest.raises(TunnelClosedError):
            tunnel.send(0, 3, b"z")

    def test_a_read_gives_at_least_one_frame_and_respects_the_bound(self, tmp_path: Path) -> None:
        """Bounded in bytes, but never stuck on a large frame."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        for number in range(10):
            tunnel.send(0, number, b"x" * 100)
        assert len(tunnel.receiver.receive(0, 1)) == 1
        assert len(tunnel.receiver.receive(0, 250)) == 3  # noqa: PLR2004 - the third passes it
        tunnel.close()

    def test_messages_reach_their_partition_numbered_per_device(self, tmp_path: Path) -> None:
        """The way down: order per device, numbers from 1, also after reopening."""
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        numbers = [tunnel.downlink_sender.send(3, "a", "k", b"1")]
        numbers.append(tunnel.downlink_sender.send(3, "b", "k", b"2"))
        tunnel.close()
        tunnel = self.open_tunnel(tmp_path / "t", 1 << 20)
        numbers.append(tunnel.downlink_sender.send(3, "a", "k", b"3"))
        tunnel.downlink_sender.send(4, "c", "k", b"4")
        assert numbers == [1, 1, 2]
        messages = tunnel.downlink.receive(3, 0, 1 << 20)
        found = [decode_downlink(data) for _, data in messages]
        assert [(m.device_id, m.sequence_number, m.payload) for m in found] == [
            ("a", 1, b"1"),
            ("b", 1, b"2"),
            ("a", 2, b"3"),
        ]
        tunnel.downlink.release(3, messages[1][0])
        assert tunnel.downlink.receive(3, messages[1][0], 1 << 20) == messages[2:]
        tunnel.close()

    def _drain(self, tunnel: Any) -> list[bytes]:
        found: list[bytes] = []
        position = 0
        while frames := tunnel.receiver.receive(position, 64):
            found.extend(frame for _, frame in frames)
            position = frames[-1][0]
            tunnel.receiver.release(position)
        return found
