"""Who has which partition, in a run over a cluster whose source says nothing of it.

Pure: told what hosts hold, it says what each is to be told. A partition goes to its next host
when the one before has let go of it, or is dead, and in a later generation: whatever a host
that was cut off still does with it is refused. From a living host it goes only when the next one
has a warm copy, so that it rests for no longer than the last commits take to travel. From a dead
one it goes to a copy first, whoever has room.
"""

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

from walle_stream.reading.assigned import Held, Placed


class Said(NamedTuple):
    """What a living host says of itself."""

    held: Held = Held()
    warm: frozenset[int] = frozenset()
    """Partitions of which it has a copy."""
    node: str = ""
    """Where it is; hosts of a node share their copies."""


class Assigner:
    """Places the partitions 0 to N-1 on hosts, evenly, moving as few as it can."""

    def __init__(self, count: int, standbys: int = 0) -> None:
        """Begin without a host; ``standbys`` other nodes keep a copy of each partition."""
        self._left = set(range(count))  # those that are not done with
        self._standbys = standbys
        self._generation = 0
        self._told: dict[int, list[Placed]] = {}  # what may still be obeyed, the newest last
        self._said: dict[int, Said] = {}

    def see(self, host: int, said: Said) -> None:
        """Take what a living host says of itself; of one that was not known, too."""
        self._said[host], held = said, said.held
        # another supervisor may have placed before this one
        self._generation = max(self._generation, held.wanted.generation, held.taken_in)
        told = self._told.get(host, [held.wanted])
        self._told[host] = [each for each in told if each.generation >= held.placed.generation]

    def forget(self, host: int) -> None:
        """Take note that a host is dead: what it held is nobody's."""
        self._told.pop(host, None)
        self._said.pop(host, None)

    def is_over(self, host: int) -> bool:
        """Whether a host has read all that it is to have to its end, and nothing else is left."""
        held = [self._of(each).held for each in self._told]
        ended = {number for each in held if each.is_ended for number in each.placed.numbers}
        own = self._of(host).held
        return self._left <= ended and own.is_ended and own.placed == self._last(host)

    @property
    def has_left(self) -> bool:
        """Whether some partition was not read to its end and closed."""
        return bool(self._left)

    def done(self, host: int) -> None:
        """Take note that a host has closed what it had read to the end."""
        self._left -= self._last(host).numbers
        self.forget(host)

    def is_empty(self, host: int) -> bool:
        """Whether a host holds nothing, and is to hold nothing."""
        held = self._of(host).held.placed
        return not held.numbers and not self._last(host).numbers

    def place(self, hosts: Collection[int], leaving: Collection[int] = ()) -> Mapping[int, Placed]:
        """Return what must be told anew, of these hosts, which are all that may have some.

        Those that are leaving keep theirs until others can have them.
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
        """Return of which partitions each of these hosts is to have a warm copy.

        A standby's, and what is to come; the latter until it is open.
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
        # also what a host may be about to open, as it has not seen yet that it is not to
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
        # what nobody has goes to a copy, also of a host that has enough, and on from there
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
        # those that have most keep one more
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
    # the same order whoever comes and goes: copies stay where they are
    def rank(host: int) -> bytes:
        return blake2b(b"%d %d" % (number, host), digest_size=8).digest()

    return sorted(hosts, key=rank)
