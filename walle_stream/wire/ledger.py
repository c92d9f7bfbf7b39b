"""The ledger of bytes: the bytes that each task sent up, beside the cost of its raw rows.

The ledger is part of the partition's head, so it commits with its batch. After any
kill it counts each committed frame once. Sizes of frames depend on the cut of
batches; values marked *as made* do not.

A frame's bytes, with envelope and framing, are divided among its records in
proportion to the bytes that tasks put into them. The shares of all tasks add up
exactly to the sent bytes.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec


class TaskBytes(msgspec.Struct, frozen=True):
    """Bytes that one task sent; all cumulative."""

    features: int = 0
    calls: int = 0
    """Calls of the cloud."""
    feature_bytes: int = 0
    """JSON of the features, as made."""
    encoding_bytes: int = 0
    """Encodings, as made."""
    question_bytes: int = 0
    """JSON of the calls' questions, as made."""
    sent_feature_bytes: int = 0
    """The features' share of the frames."""
    sent_encoding_bytes: int = 0
    """The encodings' share of the frames."""
    sent_call_bytes: int = 0
    """The calls' share of the frames of calls."""
    measured_sent_bytes: int = 0
    """Part of the three shares that was sent in measured commits."""
    feature_alone_bytes: int = 0
    """Bytes that measured commits would have sent with this task's features alone, in its
    own frame per commit, envelope included."""
    encoding_alone_bytes: int = 0
    """The same with this task's encodings alone."""

    @property
    def sent_bytes(self) -> int:
        """Share of all sent bytes."""
        return self.sent_feature_bytes + self.sent_encoding_bytes + self.sent_call_bytes

    def plus(self, other: "TaskBytes") -> "TaskBytes":
        """Return the sum of both."""
        return TaskBytes(
            *(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__)
        )


class Ledger(msgspec.Struct, frozen=True):
    """Bytes that all tasks of a partition sent; immutable."""

    tasks: dict[str, TaskBytes] = {}
    measured_rows: int = 0
    """Rows whose raw bytes were available (``walle run --ledger``)."""
    measured_raw_bytes: int = 0
    """Bytes of those rows in the source."""
    packed_raw_bytes: int = 0
    """Cost of those rows as one zstd frame per batch, envelope included."""

    def plus(self, other: "Ledger") -> "Ledger":
        """Return the sum with another partition's ledger, or with a commit's additions."""
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
    """Divide whole bytes in proportion to weights; the shares add up to the total.

    Each share differs from the exact one by less than a byte. The weights must have a sum above 0
    unless the total is 0.
    """
    weight_sum = sum(weights) or 1
    ends = [total * before // weight_sum for before in accumulate(weights, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]
