"""The ledger of bytes: what each task sent up, beside what its raw rows would have cost.

A row of the partition's head, so it commits with the batch that it is about:
after any kill it says what the committed frames cost, each once. Sizes of frames
depend on how batches were cut; what is marked *as made* does not.

A frame's bytes, envelope and framing included, are shared among the records in
it in proportion to the bytes that tasks put into them, to the byte: the shares
of all tasks add up to what left.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec


class TaskBytes(msgspec.Struct, frozen=True):
    """What one task sent; all cumulative."""

    features: int = 0
    calls: int = 0
    """Of the cloud."""
    feature_bytes: int = 0
    """JSON of its features, as made."""
    encoding_bytes: int = 0
    """Its encodings, as made."""
    question_bytes: int = 0
    """JSON of its calls' questions, as made."""
    sent_feature_bytes: int = 0
    """The features' share of the frames."""
    sent_encoding_bytes: int = 0
    """The encodings' share of the frames."""
    sent_call_bytes: int = 0
    """Its calls' share of the frames of calls."""
    measured_sent_bytes: int = 0
    """Of the three shares, what left in commits that were measured."""
    feature_alone_bytes: int = 0
    """What those commits would have sent of this task with its features alone:
    a frame of its own per commit, envelope included."""
    encoding_alone_bytes: int = 0
    """The same with its encodings alone."""

    @property
    def sent_bytes(self) -> int:
        """Its share of all that left."""
        return self.sent_feature_bytes + self.sent_encoding_bytes + self.sent_call_bytes

    def plus(self, other: "TaskBytes") -> "TaskBytes":
        """Return the sum with another's."""
        return TaskBytes(
            *(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__)
        )


class Ledger(msgspec.Struct, frozen=True):
    """What all tasks of a partition sent; never changed, only replaced."""

    tasks: dict[str, TaskBytes] = {}
    measured_rows: int = 0
    """Rows whose raw bytes were at hand (``walle run --ledger``)."""
    measured_raw_bytes: int = 0
    """Of those rows, as the source had them."""
    packed_raw_bytes: int = 0
    """What they would have cost as one zstd frame per batch, envelope included."""

    def plus(self, other: "Ledger") -> "Ledger":
        """Return the sum with another partition's, or with what a commit adds."""
        tasks = dict(self.tasks)
        for name, added in other.tasks.items():
            known = tasks.get(name)
            tasks[name] = added if known is None else known.plus(added)
        return Ledger(
            tasks,
            self.measured_rows + other.measured_rows,
            self.measured_raw_bytes + other.measured_raw_bytes,
            self.packed_raw_bytes + other.packed_raw_bytes,
        )


def shares_of(total: int, weights: Sequence[int]) -> list[int]:
    """Share whole bytes in proportion; the shares add up to the total.

    Each is less than a byte from the exact one. A weight is above 0, unless there is nothing to
    share.
    """
    weight_sum = sum(weights) or 1
    ends = [total * before // weight_sum for before in accumulate(weights, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]
