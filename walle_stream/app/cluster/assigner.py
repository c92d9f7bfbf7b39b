"""Placement of partitions on hosts, for a cluster run whose source does not place them.

The assigner is pure: from the reports of hosts it computes the placements to send. A partition goes
to its next host, in a later generation, when the previous host has released it or is dead. Whatever
a disconnected host still does with the partition is then refused. From a living host a partition
moves only if the next host has a warm copy: the pause is then no longer than the transfer of the
last commits. A dead host's partition goes first to a host with a copy, even to one that has its
share.
"""

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

from walle_stream.reading.assigned import Held, Placed


class Said(NamedTuple):
    """Report of a living host."""

    held: Held = Held()
    warm: frozenset[int] = frozenset()
    """Partitions of which the host keeps a copy."""
    node: str = ""
    """Node of the host; hosts of a node share their copies."""


class Assigner:
    """Assigner of the partitions 0 to N-1 to hosts, evenly and with as few moves as possible."""

    def __init__(self, count: int, standbys: int = 0) -> None:
        """Begin without a host; ``standbys`` other nodes keep a copy of each partition."""
        self._left = set(range(count))  # not yet finished
        self._standbys = standbys
        self._generation = 0
        self._told: dict[int, list[Placed]] = {}  # placements a host may still follow, newest last
        self._said: dict[int, Said] = {}

    def see(self, host: int, said: Said) -> None:
        """Record the report of a living host, known or new."""
        self._said[host], held = said, said.held
        # an earlier supervisor may have made placements
        self._generation = max(self._generation, held.wanted.generation, held.taken_in)
        told = self._told.get(host, [held.wanted])
        self._told[host] = [each for each in told if each.generation >= held.placed.generation]

    def forget(self, host: int) -> None:
        """Record that a host is dead and holds no partitions any more."""
        self._told.pop(host, None)
        self._said.pop(host, None)

    def is_over(self, host: int) -> bool:
        """Return whether a host has read all its input to the end, and no work is left."""
        held = [self._of(each).held for each in self._told]
        ended = {number for each in held if each.is_ended for number in each.placed.numbers}
        own = self._of(host).held
        return self._left <= ended and own.is_ended and own.placed == self._last(host)

    @property
    def has_left(self) -> bool:
        """Whether some partition was not yet read to its end and closed."""
        return bool(self._left)

    def done(self, host: int) -> None:
        """Record that a host has closed the partitions that it had read to the end."""
        self._left -= self._last(host).numbers
        self.forget(host)

    def is_empty(self, host: int) -> bool:
        """Return whether a host holds no partition and none is assigned to it."""
        held = self._of(host).held.placed
        return not held.numbers and not self._last(host).numbers

    def place(self, hosts: Collection[int], leaving: Collection[int] = ()) -> Mapping[int, Placed]:
        """Return the placements that have changed, by host.

        ``hosts`` are all hosts that may own partitions. Those in ``leaving`` keep theirs until
        other hosts can take them.
        """
        placed = {}
        for host, numbers in self._wanted(sorted(hosts), leaving).items():
            last, held = self._last(host), self._of(host).held
            has_missed = held.placed.generation >= last.generation and (
                held.placed.numbers != numbers
            )
            if numbers != last.numbers or has_missed:
                self._generation += 1
                placed[host] = Placed(self._generation, numbers)
                self._told.setdefault(host, []).append(placed[host])
        return placed

    def copies(self, hosts: Collection[int]) -> Mapping[int, frozenset[int]]:
        """Return the partitions of which each of these hosts keeps a warm copy.

        A host keeps copies as a standby, and of partitions that will move to it until they are
        open.
        """
        owners = self._owners()
        found: dict[int, set[int]] = {host: set() for host in hosts}
        for host, numbers in self._target(sorted(hosts), owners).items():
            found[host] |= numbers - self._of(host).held.placed.numbers
        for number in self._left:
            taken = {self._of(owners[number]).node} if number in owners else set()
            for host in _ranked(number, hosts):
                if len(taken) > self._standbys:
                    break
                if (node := self._of(host).node) not in taken:
                    taken.add(node)
                    found[host].add(number)
        return {host: frozenset(numbers) for host, numbers in found.items()}

    def _of(self, host: int) -> Said:
        return self._said.get(host, Said())

    def _last(self, host: int) -> Placed:
        told = self._told.get(host)
        return told[-1] if told else Placed()

    def _owners(self) -> dict[int, int]:
        # includes partitions that a host may be about to open, as it does not yet know its new
        # placement
        return {
            number: host
            for host, told in self._told.items()
            for placed in (self._of(host).held.placed, *told)
            for number in placed.numbers
        }

    def _wanted(self, hosts: list[int], leaving: Collection[int]) -> dict[int, frozenset[int]]:
        owners = self._owners()
        wanted: dict[int, set[int]] = {host: set() for host in (*hosts, *leaving)}
        if not hosts:
            return {host: self._last(host).numbers for host in leaving}
        for host, numbers in self._target(hosts, owners).items():
            for number in numbers:
                owner = owners.get(number)
                if owner is None:
                    wanted[self._first_to_have(number, host, hosts)].add(number)
                elif owner == host:
                    wanted[host].add(number)
                elif owner in wanted and not self._can_go(number, owner, host):
                    wanted[owner].add(number)
        return {host: frozenset(numbers) for host, numbers in wanted.items()}

    def _first_to_have(self, number: int, host: int, hosts: list[int]) -> int:
        # a partition without owner goes to a host with a copy, even a full one, and moves on from
        # there
        warm = [each for each in hosts if number in self._of(each).warm]
        return host if host in warm or not warm else warm[0]

    def _can_go(self, number: int, owner: int, host: int) -> bool:
        there = self._of(host)
        is_told = number in self._last(owner).numbers
        return not is_told or there.node == self._of(owner).node or number in there.warm

    def _target(self, hosts: list[int], owners: Mapping[int, int]) -> dict[int, set[int]]:
        if not hosts:
            return {}
        least, more = divmod(len(self._left), len(hosts))
        target: dict[int, set[int]] = {host: set() for host in hosts}
        for number in sorted(self._left):
            owner = owners.get(number)
            if owner in target:
                target[owner].add(number)
        # the hosts with most partitions keep one more
        by_size = sorted(hosts, key=lambda host: (-len(target[host]), host))
        shares = {host: least + (at < more) for at, host in enumerate(by_size)}
        for host in hosts:
            target[host] = set(sorted(target[host])[: shares[host]])
        free = self._left - {number for own in target.values() for number in own}
        for number in sorted(free):
            able = [host for host in _ranked(number, hosts) if len(target[host]) < shares[host]]
            target[min(able, key=lambda host: number not in self._of(host).warm)].add(number)
        return target


def _ranked(number: int, hosts: Collection[int]) -> list[int]:
    # an order that does not depend on the other hosts: copies stay in place when hosts come and go
    def rank(host: int) -> bytes:
        return blake2b(b"%d %d" % (number, host), digest_size=8).digest()

    return sorted(hosts, key=rank)
