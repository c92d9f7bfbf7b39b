"""What a reader asks of its consumer group, with one adapter for each library.

Each owner of a partition has a *generation*, a number that grows from owner to owner and fences
what the owner sends. It stands beside the partition's committed offset: a new owner reads it,
and commits the next one before it opens the partition. The broker takes an offset from nobody
but a present member, and a partition that is given away needs another poll of this member. So
no library has to tell the group's own generation, and a group that was made anew is no special
case: its owners go on above what the state of a partition has seen.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol, Self

from walle_connectors.kafka.source.fetching import Fetcher, Polled

STAND_IN_SHARE: Final = 1 / 3
"""Share of the poll interval without a read after which polls go on by themselves."""


class Told(NamedTuple):
    """What the group keeps of a partition."""

    offset: int = 0
    """Where its owner was; tools show lag by it."""
    generation: int = 0
    """Of its last owner; 0 where there was none."""
    owner: str = ""
    """The last owner, as ``Placement.incarnation`` names it; empty where nobody said."""

    @property
    def metadata(self) -> str:
        """What stands beside the offset."""
        return f"{self.generation} {self.owner}"

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Self:
        """Read what was committed; a tool that resets offsets removes all but the offset."""
        # confluent-kafka 2.16 commits the end of a C string, too, and reads beyond one without it
        generation, _, owner = (metadata or "").partition("\0")[0].partition(" ")
        return cls(offset, int(generation) if generation.isdecimal() else 0, owner)


class GiveBack(Protocol):
    """Closes partitions, of which some may not be open."""

    def __call__(self, numbers: Collection[int], *, is_lost: bool) -> None:
        """Give back, or, where ``is_lost``, close what others may have already."""


class Group(Protocol):
    """A member of a group that reads one topic. One thread, its reader's.

    While the reader stays away it is stood in for, so that the group sees a member that polls.
    The stand-in gives nothing back: once the group asks for partitions, the poll interval decides.
    """

    @property
    def fetcher(self) -> Fetcher:
        """What fetches the partitions that the reader has opened; the group closes it."""

    @property
    def owned(self) -> Collection[int]:
        """What the group gave to this member; it changes within ``poll`` and ``take``."""

    @property
    def is_member(self) -> bool:
        """Whether it is in the group, with whatever partitions."""

    def join(self, give_back: GiveBack) -> None:
        """Begin to join; ``give_back`` is called before others get what goes from here.

        It runs in the reader's thread.
        """

    def take(self, wait_s: float) -> bool:
        """Take the group for a turn of its reader, or wait; ``give`` behind it.

        False: a stand-in has it for the moment.

        Raises:
            WalleError: The stand-in failed, or partitions could not be given back.
        """

    def give(self) -> None:
        """Let it go until the reader's next turn."""

    def poll(self, most: int) -> Polled | None:
        """Return at most ``most`` records, after some milliseconds at most.

        None while the poll goes on.

        Raises:
            SourceError: The topic cannot be read on.
            WalleError: Partitions could not be given back.
        """

    def claim(self, told: Mapping[int, Told]) -> bool:
        """Commit; blocks. False: the group is moving, or this is no member of it any more.

        Raises:
            BrokerUnreachableError: The group's broker does not answer.
            SourceError: It refuses.
        """

    def tell(self, told: Mapping[int, Told], on_taken: Callable[[], None] | None = None) -> None:
        """Commit soon; never raises. ``on_taken`` is called when the group has taken it."""

    def leave(self, *, gives_back: bool) -> None:
        """Leave the group, behind giving back what is owned where told so; blocks for seconds.

        Raises:
            WalleError: Partitions could not be given back; it has left.
        """
