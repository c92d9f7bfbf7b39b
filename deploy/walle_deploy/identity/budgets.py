"""How much each may ask: a budget that fills again with time, for each of very many.

A token bucket as one number (the generic cell rate algorithm, ITU-T I.371): the moment at which
the bucket is full again. What was taken may be known afterwards alone (the frames of a batch), so
a bucket goes below empty once, and whoever emptied it waits until it is filled.
"""

from collections import OrderedDict


class Budget:
    """Buckets of one kind, by name; in memory for those that took something last. One thread."""

    def __init__(self, per_s: float, burst_s: float, remembered: int) -> None:
        """Begin with full buckets.

        Args:
            per_s: What flows into each a second; 0: there is no bound.
            burst_s: Seconds in which an empty one is full.
            remembered: Most buckets. The one unused for longest goes; mostly it is full again.
        """
        self._cost_s = 1 / per_s if per_s else 0.0
        self._burst_s = burst_s
        self._remembered = remembered
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are in memory."""
        return len(self._full_at)

    def wait_s(self, name: str, now_s: float) -> float:
        """Return how long it is until something is in a bucket; 0 where something is.

        Args:
            name: Whose.
            now_s: Of a clock that never goes back.
        """
        return max(self._full_at.get(name, 0.0) - self._burst_s - now_s, 0.0)

    def take(self, name: str, amount: float, now_s: float) -> None:
        """Take from a bucket, whatever is in it.

        Args:
            name: Whose.
            amount: ≥ 0.
            now_s: As for ``wait_s``.
        """
        if not self._cost_s:
            return
        full_at = max(self._full_at.get(name, 0.0), now_s) + amount * self._cost_s
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > self._remembered:
            self._full_at.popitem(last=False)
