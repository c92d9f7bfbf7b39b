"""Port of consumer groups, with one adapter for each library.

Each owner of a partition has a *generation*, a number that grows from owner to owner and fences the
owner's frames. It is the metadata of the partition's committed offset. A new owner reads it and
commits the next number before it opens the partition. The broker accepts commits only from current
members, and this member must poll again before a partition can move away. So no library has to
report the group's own generation. A recreated group is no special case: its owners continue above
the generation in a partition's state.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol, Self

from walle_connectors.kafka.source.fetching import Fetcher, Polled

STAND_IN_SHARE: Final = 1 / 3
"""Share of the poll interval without a read after which a stand-in polls."""


class Told(NamedTuple):
    """A group's committed data of a partition."""

    offset: int = 0
    """Position of the last owner; tools show lag by it."""
    generation: int = 0
    """Generation of the last owner; 0 if there was none."""
    owner: str = ""
    """``Placement.incarnation`` of the last owner; empty if unknown."""

    @property
    def metadata(self) -> str:
        """Metadata of the committed offset."""
        return f"{self.generation} {self.owner}"

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Self:
        """Decode committed data; a tool that resets offsets removes the metadata."""
        # confluent-kafka 2.16 commits a C string with its NUL, and reads too far without a NUL
        generation, _, owner = (metadata or "").partition("\0")[0].partition(" ")
        return cls(offset, int(generation) if generation.isdecimal() else 0, owner)


class GiveBack(Protocol):
    """Callback that closes partitions, some of which may not be open."""

    def __call__(self, numbers: Collection[int], *, is_lost: bool) -> None:
        """Give partitions back; if ``is_lost``, only close them: others may own them already."""


class Group(Protocol):
    """A member of a group that reads one topic. For its reader's thread.

    While the reader does not come, a stand-in polls, so the group sees a live member. The stand-in
    gives no partition back: when the group asks for partitions, the poll interval limits the wait.
    """

    @property
    def fetcher(self) -> Fetcher:
        """Fetcher of the partitions that the reader has opened; the group closes it."""

    @property
    def owned(self) -> Collection[int]:
        """Partitions assigned to this member; changes only during ``poll`` and ``take``."""

    @property
    def is_member(self) -> bool:
        """Whether this member is in the group, with or without partitions."""

    def join(self, give_back: GiveBack) -> None:
        """Start joining; ``give_back`` runs before other members get partitions from here.

        It runs in the reader's thread.
        """

    def take(self, wait_s: float) -> bool:
        """Take the group for a turn of its reader, waiting at most ``wait_s``; then call ``give``.

        Returns False while a stand-in uses the group.

        Raises:
            WalleError: The stand-in failed, or partitions could not be given back.
        """

    def give(self) -> None:
        """End the reader's turn."""

    def poll(self, most: int) -> Polled | None:
        """Return at most ``most`` records, after some milliseconds at most.

        Returns None while the poll is still running.

        Raises:
            SourceError: Reading of the topic failed.
            WalleError: Partitions could not be given back.
        """

    def claim(self, told: Mapping[int, Told]) -> bool:
        """Commit; blocks. False during a rebalance, or if this member has left the group.

        Raises:
            BrokerUnreachableError: The group's broker does not answer.
            SourceError: The broker refuses the commit.
        """

    def tell(self, told: Mapping[int, Told], on_taken: Callable[[], None] | None = None) -> None:
        """Commit without waiting; never raises. ``on_taken`` is called after the commit."""

    def leave(self, *, gives_back: bool) -> None:
        """Leave the group, after giving partitions back if ``gives_back``; blocks for seconds.

        Raises:
            WalleError: Partitions could not be given back; the member has left nevertheless.
        """
