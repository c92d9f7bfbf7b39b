"""Who has which partition, in a run over a cluster whose source says nothing of it.

Pure: told what hosts hold, it says what each is to be told. A partition goes to its next host
when the one before has let go of it, or is dead, and in a later generation: whatever a host
that was cut off still does with it is refused.
"""

from collections.abc import Collection, Mapping

from walle_stream.reading.assigned import Held, Placed


class Assigner:
    """Places the partitions 0 to N-1 on hosts, evenly, moving as few as it can."""

    def __init__(self, count: int) -> None:
        """Begin without a host."""
        self._left = set(range(count))  # those that are not done with
        self._generation = 0
        self._told: dict[int, list[Placed]] = {}  # what may still be obeyed, the newest last
        self._held: dict[int, Held] = {}

    def see(self, host: int, held: Held) -> None:
        """Take what a living host says of itself; of one that was not known, too."""
        self._held[host] = held
        # another supervisor may have placed before this one
        self._generation = max(self._generation, held.wanted.generation, held.taken_in)
        told = self._told.get(host, [held.wanted])
        self._told[host] = [each for each in told if each.generation >= held.placed.generation]

    def forget(self, host: int) -> None:
        """Take note that a host is dead: what it held is nobody's."""
        self._told.pop(host, None)
        self._held.pop(host, None)

    def is_over(self, host: int) -> bool:
        """Whether a host has read all that it is to have to its end, and nothing else is left."""
        held = [self._held.get(each, Held()) for each in self._told]
        ended = {number for each in held if each.is_ended for number in each.placed.numbers}
        own = self._held.get(host, Held())
        return self._left <= ended and own.is_ended and own.placed == self._last(host)

    def done(self, host: int) -> None:
        """Take note that a host has closed what it had read to the end."""
        self._left -= self._last(host).numbers
        self.forget(host)

    def place(self, hosts: Collection[int]) -> Mapping[int, Placed]:
        """Return what must be told anew, of these hosts, which are all that may have some."""
        placed = {}
        for host, numbers in self._wanted(sorted(hosts)).items():
            last, held = self._last(host), self._held.get(host, Held())
            has_missed = held.placed.generation >= last.generation and (
                held.placed.numbers != numbers
            )
            if numbers != last.numbers or has_missed:
                self._generation += 1
                placed[host] = Placed(self._generation, numbers)
                self._told.setdefault(host, []).append(placed[host])
        return placed

    def _last(self, host: int) -> Placed:
        told = self._told.get(host)
        return told[-1] if told else Placed()

    def _wanted(self, hosts: list[int]) -> dict[int, frozenset[int]]:
        if not hosts:
            return {}
        # also what a host may be about to open, as it has not seen yet that it is not to
        owners = {
            number: host
            for host, told in self._told.items()
            for placed in (self._held.get(host, Held()).placed, *told)
            for number in placed.numbers
        }
        return {
            host: frozenset(n for n in numbers if owners.get(n, host) == host)
            for host, numbers in self._target(hosts, owners).items()
        }

    def _target(self, hosts: list[int], owners: Mapping[int, int]) -> dict[int, set[int]]:
        least, more = divmod(len(self._left), len(hosts))
        target: dict[int, set[int]] = {host: set() for host in hosts}
        for number in sorted(self._left):
            owner = owners.get(number)
            if owner in target:
                target[owner].add(number)
        # those that have most keep one more
        by_size = sorted(hosts, key=lambda host: (-len(target[host]), host))
        shares = {host: least + (at < more) for at, host in enumerate(by_size)}
        for host in hosts:
            target[host] = set(sorted(target[host])[: shares[host]])
        free = sorted(self._left - {number for own in target.values() for number in own})
        for host in hosts:
            while free and len(target[host]) < shares[host]:
                target[host].add(free.pop(0))
        return target
