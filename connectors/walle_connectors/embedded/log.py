r"""The embedded tunnel: both directions as logs in one RocksDB.

Keys, integers big-endian::

    \x01 u64 position                  uplink envelope
    \x02 u32 partition u64 position    downlink envelope

An append is acknowledged, and seen by the other side, once it is durable (``store.durability``):
so nobody's position is ahead of what the log still has after a power cut. Where it is never
flushed that may be; then positions go on behind what the other side has seen. The last entry of
each way is never deleted, for the same reason. Where the cloud side is behind what the log has
deleted (a copy of it was restored, or it is gone), frames from before this process are let go, too:
what is given never has a hole, and so partitions learn at their opening what to send again.

What travels up is also in memory until it is released, so the cloud side reads
nothing from the disk; the rows are for the next process. They are deleted many at
once: what is there a little longer the cloud side's position passes over.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from threading import Condition
from typing import Final

from rocksdict import Rdict, WriteBatch

from walle_stream.errors import TunnelClosedError
from walle_stream.store.files import make_folder
from walle_stream.store.rocks import RocksErrorMap, durability_of, open_rocks, scan_rocks
from walle_stream.types import UplinkFrame

_U64: Final = Struct(">Q")
_DOWN: Final = Struct(">IQ")
_DELETE_EVERY: Final = 256  # frames
_DELETE_BYTES: Final = 4 * 2**20

type _Acks = dict[int, list[int]]  # numbers by partition


class EmbeddedTunnel:
    """Implements every tunnel port over one database. Thread-safe."""

    def __init__(self, path: Path, max_bytes: int, sync_ms: float | None = None) -> None:
        """Open the log, making it if it is not there; blocks.

        A sender waits while ``max_bytes`` of frames are not released; ``sync_ms`` is how often the
        log is flushed to the disk, see ``store.durability``.

        Raises:
            StoreError: The database cannot be opened.
        """
        make_folder(path)
        self._path = path
        self._database: Rdict = open_rocks(path)
        self._durability = durability_of(self._database, path, sync_ms)
        self._max_bytes = max_bytes
        self._condition = Condition()
        self._is_closed = False
        self._acks: dict[int, list[int]] = {}
        # what is not durable yet: (ticket, acknowledgements of who sent it down, partition, number,
        # position)
        self._appended: deque[tuple[int, _Acks | None, int, int, int]] = deque()
        self._durable = self._loaded = 0  # positions of frames; of the last one that was found
        self._durable_down: dict[int, int] = {}
        self._frames: deque[tuple[int, bytes]] = deque()  # not released
        self._bytes = 0  # of them
        self._first = 0  # that has a row
        self._released_bytes = 0  # of those that have a row
        self._next = 1
        self._last_down: dict[int, int] = {}
        self._released_down: dict[int, int] = {}
        self._load()

    # The way up

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Append frames, in one write where they all have room; see ``Uplink.send``.

        Raises:
            TunnelClosedError: The tunnel was closed; the frames stay in the outbox.
        """
        left = deque(frames)
        with self._condition:
            while left:
                room = self._condition.wait_for(lambda: self._is_closed or self._with_room(left))
                if self._is_closed:
                    raise TunnelClosedError(
                        f"the tunnel {self._path} is closed: {len(left)} frames stay in the outbox"
                    )
                self._append([left.popleft() for _ in range(room)])

    def _with_room(self, frames: Iterable[UplinkFrame]) -> int:
        # how many of them may be appended now; one at least, where nothing waits
        count, size_bytes = 0, self._bytes
        for _, _, frame in frames:
            if size_bytes and size_bytes + len(frame) > self._max_bytes:
                break
            size_bytes += len(frame)
            count += 1
        return count

    def _append(self, frames: Sequence[UplinkFrame]) -> None:
        batch = WriteBatch(raw_mode=True)
        for position, (_, _, frame) in enumerate(frames, self._next):
            batch.put(b"\x01" + _U64.pack(position), frame)
        with RocksErrorMap(self._path):
            self._database.write(batch)
        ticket = self._durability.commit()
        self._first = self._first or self._next
        for partition, number, frame in frames:
            self._frames.append((self._next, frame))
            self._bytes += len(frame)
            self._appended.append((ticket, None, partition, number, self._next))
            self._next += 1

    def acks(self, partition: int) -> Iterable[int]:
        """Return new acknowledgements; see ``Uplink.acks``."""
        with self._condition:
            self._look()
            return self._acks.pop(partition, ())

    def receive_up(self, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return frames behind a position; see ``UplinkReceiver.receive``."""
        if position + 1 >= self._next:
            return ()
        with self._condition:
            self._look()
            if self._loaded > position:
                waiting = sum(position < frame[0] <= self._loaded for frame in self._frames)
                if waiting < self._loaded - position:
                    self._let_go(self._loaded)
            self._loaded = 0  # once is enough: what is sent from now on has no hole
            found, size_bytes = [], 0
            for frame in self._frames:
                if size_bytes >= max_bytes or frame[0] > self._durable:
                    break
                if frame[0] > position:
                    found.append(frame)
                    size_bytes += len(frame[1])
            return found

    def release_up(self, position: int) -> None:
        """Forget frames; see ``UplinkReceiver.release``."""
        with self._condition:
            last = self._next - 1
            # it lost what was merged: these positions are not given twice
            self._next = max(self._next, position + 1)
            # a position beyond the last entry must not take that one along
            self._let_go(min(position, last))

    # The way down

    def send_down(self, frames: Sequence[UplinkFrame], acks: _Acks | None = None) -> None:
        """Append messages in one write; see ``DownlinkSender``. ``acks_down`` fills ``acks``.

        Raises:
            TunnelClosedError: The tunnel was closed.
        """
        with self._condition, RocksErrorMap(self._path):
            if self._is_closed:
                raise TunnelClosedError(f"the tunnel {self._path} is closed")
            batch, appended = WriteBatch(raw_mode=True), []
            for partition, number, message in frames:
                position = self._last_down.get(partition, 0) + 1
                batch.put(b"\x02" + _DOWN.pack(partition, position), message)
                self._last_down[partition] = position
                appended.append((partition, number, position))
            self._database.write(batch)
            ticket = self._durability.commit()
            own = {} if acks is None else acks
            self._appended += [(ticket, own, *each) for each in appended]

    def acks_down(self, partition: int, acks: _Acks) -> Iterable[int]:
        """Return a sender's new acknowledgements of messages; see ``Uplink.acks``."""
        with self._condition:
            self._look()
            return acks.pop(partition, ())

    def settle(self) -> None:
        """Block until all that was appended is durable, either way."""
        self._durability.wait()

    def receive_down(
        self, partition: int, position: int, max_bytes: int
    ) -> Sequence[tuple[int, bytes]]:
        """Return messages of a partition; see ``Downlink.receive``."""
        with self._condition:
            self._look()
            if self._last_down.get(partition, 0) < position:
                # it lost what was taken: these positions are not given twice
                self._last_down[partition] = self._durable_down[partition] = position
            last = self._durable_down.get(partition, 0)
        if last <= position:
            return ()
        start, end = (b"\x02" + _DOWN.pack(partition, place) for place in (position + 1, last + 1))
        found: list[tuple[int, bytes]] = []
        size_bytes = 0
        for key, value in scan_rocks(self._database, self._path, start, end):
            found.append((int(_DOWN.unpack_from(key, 1)[1]), value))
            size_bytes += len(value)
            if size_bytes >= max_bytes:
                break
        return found

    def release_down(self, partition: int, position: int) -> None:
        """Forget messages; see ``Downlink.release``."""
        with self._condition, RocksErrorMap(self._path):
            if position > self._released_down.get(partition, 0) and not self._is_closed:
                self._released_down[partition] = position
                # the end of a range is exclusive: the last entry stays
                self._database.delete_range(
                    b"\x02" + _DOWN.pack(partition, 0), b"\x02" + _DOWN.pack(partition, position)
                )

    # Life

    def close(self) -> None:
        """Close both ways; waiting senders get ``TunnelClosedError``."""
        with self._condition:
            if not self._is_closed:
                self._is_closed = True
                self._condition.notify_all()
                self._durability.close()
                with RocksErrorMap(self._path):
                    self._database.close()

    @property
    def receiver(self) -> "EmbeddedReceiver":
        """The cloud's end of the way up."""
        return EmbeddedReceiver(self)

    @property
    def downlink(self) -> "EmbeddedDownlink":
        """The devices' end of the way down."""
        return EmbeddedDownlink(self)

    @property
    def downlink_sender(self) -> "EmbeddedDownlinkSender":
        """One more sender of the way down, with acknowledgements of its own."""
        return EmbeddedDownlinkSender(self)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of frames not yet released."""
        return self._bytes

    def _load(self) -> None:
        for key, frame in scan_rocks(self._database, self._path, b"\x01", b"\x02"):
            position = int(_U64.unpack_from(key, 1)[0])
            self._first = self._first or position
            self._frames.append((position, frame))
            self._bytes += len(frame)
            self._next = position + 1
        for key, _ in scan_rocks(self._database, self._path, b"\x02", b"\x03"):
            partition, position = _DOWN.unpack_from(key, 1)
            self._last_down[partition] = position
        # what was found was flushed by the opening
        self._durable = self._loaded = self._next - 1
        self._durable_down = dict(self._last_down)

    def _look(self) -> None:
        # under the lock: takes note of what is durable by now
        if not self._appended:
            return
        appended, durable = self._appended, self._durability.durable()
        while appended and appended[0][0] <= durable:
            _, acks, partition, number, position = appended.popleft()
            if acks is not None:
                acks.setdefault(partition, []).append(number)
                self._durable_down[partition] = position
            else:
                self._acks.setdefault(partition, []).append(number)
                self._durable = position

    def _let_go(self, position: int) -> None:
        frames = self._frames
        while frames and frames[0][0] <= position:
            size_bytes = len(frames.popleft()[1])
            self._bytes -= size_bytes
            self._released_bytes += size_bytes
        if position - self._first >= _DELETE_EVERY or self._released_bytes > _DELETE_BYTES:
            self._delete_until(position)
        self._condition.notify_all()

    def _delete_until(self, position: int) -> None:
        # the end of a range is exclusive: the last entry stays
        if position > self._first and not self._is_closed:
            with RocksErrorMap(self._path):
                self._database.delete_range(
                    b"\x01" + _U64.pack(self._first), b"\x01" + _U64.pack(position)
                )
            self._first, self._released_bytes = position, 0


class EmbeddedReceiver:
    """The cloud's end of the way up, as ``UplinkReceiver``."""

    def __init__(self, tunnel: EmbeddedTunnel) -> None:
        """Read from a tunnel."""
        self._tunnel = tunnel

    def receive(self, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return frames behind a position; see ``UplinkReceiver.receive``."""
        return self._tunnel.receive_up(position, max_bytes)

    def release(self, position: int) -> None:
        """Forget frames; see ``UplinkReceiver.release``."""
        self._tunnel.release_up(position)


class EmbeddedDownlinkSender:
    """The cloud's end of the way down, as ``DownlinkSender``."""

    def __init__(self, tunnel: EmbeddedTunnel) -> None:
        """Write to a tunnel."""
        self._tunnel = tunnel
        self._acks: _Acks = {}

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Append messages; see ``DownlinkSender``."""
        self._tunnel.send_down(frames, self._acks)

    def acks(self, partition: int) -> Iterable[int]:
        """Return new acknowledgements; see ``Uplink.acks``."""
        return self._tunnel.acks_down(partition, self._acks)

    def close(self) -> None:
        """Do nothing: the tunnel is closed by its owner."""


class EmbeddedDownlink:
    """The devices' end of the way down, as ``Downlink``."""

    def __init__(self, tunnel: EmbeddedTunnel) -> None:
        """Read from a tunnel."""
        self._tunnel = tunnel

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages of a partition; see ``Downlink.receive``."""
        return self._tunnel.receive_down(partition, position, max_bytes)

    def release(self, partition: int, position: int) -> None:
        """Forget messages; see ``Downlink.release``."""
        self._tunnel.release_down(partition, position)
