"""Which frames of a partition have which numbers."""

from typing import Final, NamedTuple


class Numbering(NamedTuple):
    """Since when a partition's frames have the numbers that they have.

    They are numbered anew where one side has forgotten: equal numbers of two numberings are
    different frames.
    """

    since: int = 0
    """First epoch of it; 0: since there is the partition."""
    first: int = 1
    """Number of its first frame: behind the last one that the cloud side had then."""


FIRST_NUMBERING: Final = Numbering()
"""Of a partition that nobody has forgotten anything of."""
