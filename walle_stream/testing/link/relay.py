"""The link: it listens, connects, and takes its faults from any thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

from walle_stream.errors import LinkAddressError
from walle_stream.testing.link.connection import Connection, Lane, Pipe, reset_writer
from walle_stream.testing.link.shape import DOWN, UP, Direction, LinkShape

type Address = tuple[str, int]
"""Host and port."""


class Link:
    """A TCP relay with faults. All methods may be called from any thread; none waits for bytes.

    ``stall`` delays bytes and loses none. ``cut`` loses all bytes without telling the sender. A
    connection that lost bytes can never continue, so ``heal`` resets it. Connections made during a
    cut, or during a stall of either direction, wait until it is healed, as repeated SYNs would.
    """

    def __init__(self, target: Address, listen: Address = ("127.0.0.1", 0), seed: int = 1) -> None:
        """Listen at once, in a thread of its own.

        Args:
            target: Address to connect to. It need not exist yet; a refused connection is reset.
            listen: Address to listen at; port 0 takes any free port.
            seed: Seed of the jitter; each connection combines it with its number.

        Raises:
            LinkAddressError: The address is in use, or does not belong to this machine.
        """
        self._target = target
        self._seed = seed
        self._lanes = {UP: Lane(UP), DOWN: Lane(DOWN)}
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Condition()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="walle-test-link", daemon=True
        )
        self._thread.start()
        try:
            self._server = self._do(asyncio.start_server(self._accept, *listen))
        except OSError as error:
            self._end_loop()
            raise LinkAddressError(
                f"a link cannot listen at {listen[0]}:{listen[1]} ({error.strerror or error}): "
                "give another address, or port 0 for any free port"
            ) from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address: Address = (host, port)
        """Address at which the link listens."""

    # Faults

    def shape(self, shape: LinkShape, direction: Direction | None = None) -> None:
        """Set delay, jitter and rate; bytes in flight keep their times.

        Args:
            shape: Delay, jitter, rate.
            direction: One direction; None for both.
        """
        self._change(direction, lambda lane: setattr(lane, "shape", shape))

    def stall(self, direction: Direction | None = None) -> None:
        """Deliver no bytes until ``heal``, without losing any; senders finally have to wait.

        Args:
            direction: One direction; None for both.
        """
        self._change(direction, lambda lane: setattr(lane, "is_stalled", True))

    def cut(self, direction: Direction | None = None) -> None:
        """Lose every byte until ``heal`` without telling any end.

        Args:
            direction: One direction, which leaves connections half-open; None for both.
        """
        self._change(direction, lambda lane: setattr(lane, "is_cut", True))

    def heal(self, direction: Direction | None = None) -> None:
        """End stalls and cuts; without any cut left, reset the connections that lost bytes.

        Args:
            direction: One direction; None for both.
        """

        def heal(lane: Lane) -> None:
            lane.is_stalled = lane.is_cut = False

        self._change(direction, heal)

    def reset(self) -> None:
        """Reset every connection at both ends now; new connections are possible at once."""
        self._do(self._reset())

    # State for tests

    @property
    def connection_count(self) -> int:
        """Number of connections that are open now."""
        return len(self._connections)

    @property
    def accepted_count(self) -> int:
        """Number of connections accepted so far, including those that wait for a cut's end."""
        return self._accepted

    def delivered_bytes(self, direction: Direction) -> int:
        """Return the number of bytes delivered to the receiving end so far."""
        return self._lanes[direction].delivered_bytes

    def lost_bytes(self, direction: Direction) -> int:
        """Return the number of bytes lost in cuts so far."""
        return self._lanes[direction].lost_bytes

    # Life

    def close(self) -> None:
        """Reset all connections and stop listening; may be called twice."""
        if self._loop.is_closed():
            return
        self._do(self._close())
        self._end_loop()

    def __enter__(self) -> Self:
        """Return the link."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the link."""
        self.close()

    def _do[T](self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _change(self, direction: Direction | None, change: Callable[[Lane], None]) -> None:
        async def apply() -> None:
            async with self._changed:
                for each, lane in self._lanes.items():
                    if direction in {None, each}:
                        change(lane)
                if not any(lane.is_cut for lane in self._lanes.values()):
                    # first of all, so that no end is delivered after lost bytes
                    for connection in self._connections:
                        if connection.is_torn:
                            connection.reset()
                self._changed.notify_all()

        self._do(apply())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # a task of our own: the server does not cancel its tasks at its end
        self._accepted += 1
        task = asyncio.ensure_future(self._connect(reader, writer, self._accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        lanes = self._lanes.values()
        try:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: not any(lane.is_cut or lane.is_stalled for lane in lanes)
                )
            back, forth = await asyncio.open_connection(*self._target)
        except BaseException as error:
            reset_writer(writer)
            if isinstance(error, OSError):
                return
            raise
        up = Pipe(self._lanes[UP], reader, forth, self._changed, f"{self._seed}/{number}/up")
        down = Pipe(self._lanes[DOWN], back, writer, self._changed, f"{self._seed}/{number}/down")
        connection = Connection(up, down, (writer, forth))
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _reset(self) -> None:
        for connection in self._connections:
            connection.reset()

    async def _close(self) -> None:
        self._server.close()
        await self._reset()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._server.wait_closed()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        with suppress(RuntimeError):
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
