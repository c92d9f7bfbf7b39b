"""The cloud actor: takes frames off the tunnel and keeps the feature table.

Exactly-once is decided in its store: features, what has been seen of each
device and the tunnel's position commit in one write batch.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from walle_stream.actors.actor import Actor
from walle_stream.ports import UplinkReceiver

MERGE_MAX_BYTES: Final = 1024 * 1024
"""Most bytes of frames merged in one write batch."""


class CloudStats(Protocol):
    """What a feature store counts, cumulative."""

    features: int
    devices: int
    duplicates_dropped: int
    gaps: int
    frames_refused: int


class CloudStore(Protocol):
    """Where the cloud side keeps features. One thread, the cloud actor's."""

    @property
    def position(self) -> int:
        """The tunnel's position up to which frames are merged; 0 for none."""
        ...

    @property
    def stats(self) -> CloudStats:
        """What was merged since the store was made."""
        ...

    def merge(self, frames: Sequence[tuple[int, bytes]]) -> Any:
        """Merge frames and remember their position in one write batch; blocks.

        Args:
            frames: (position, envelope), ascending, behind ``position``.
        """
        ...


class Drain(msgspec.Struct):
    """Question: merge all that is in the tunnel, answer with the statistics."""


class CloudActor(Actor):
    """The cloud side of one tunnel; see the module's docstring."""

    name = "cloud"
    idle_interval_s = 0.02

    def __init__(self, store: CloudStore, receiver: UplinkReceiver) -> None:
        """Take over the cloud side.

        Args:
            store: The feature table.
            receiver: The tunnel's end.
        """
        self._store = store
        self._receiver = receiver

    def on_message(self, message: Any) -> Any:
        """Answer ``Drain``.

        Raises:
            TypeError: Another message; a bug of the sender.
        """
        if isinstance(message, Drain):
            self.on_idle()
            return self._store.stats
        raise TypeError(f"the cloud actor got {type(message).__name__}")

    def on_idle(self) -> None:
        """Merge what has arrived, then let the tunnel forget it."""
        store, receiver = self._store, self._receiver
        while frames := receiver.receive(store.position, MERGE_MAX_BYTES):
            store.merge(frames)
            receiver.release(store.position)
