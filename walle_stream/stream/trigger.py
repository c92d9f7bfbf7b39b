"""The trigger trie: which tasks an event wakes (Walle §"trigger management").

A condition is a sequence of trigger ids; a trigger id is an event id or a page
id. All conditions share one trie. Each event is held first against the *static
pending list* (the children of the root, always armed), then against the
*dynamic pending list* (the next nodes of the ongoing matches); the next nodes
found are buffered, so that one event cannot serve two consecutive nodes, and
become the new dynamic list. An ongoing match that an event does not continue
ends: strict contiguity.

The algorithm is ``_step``. Its results are remembered per (live nodes, event
id, page id), so an event costs one look-up however many tasks there are.
"""

from collections.abc import Iterable, Sequence
from typing import Final

type Path = tuple[str, ...]
"""A node of the trie, by the trigger ids that lead to it from the root."""

type Cursor = tuple[Path, ...]
"""The dynamic pending list as the nodes matched last, sorted; plain values."""

EMPTY_CURSOR: Final[Cursor] = ()
"""No ongoing match."""

_CACHE_MAX: Final = 65_536


class _Node:
    __slots__ = ("children", "path", "tasks")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.children: dict[str, _Node] = {}
        self.tasks: set[str] = set()


class TriggerTrie:
    """Conditions of all tasks of a partition. One thread.

    Inserting and removing tasks keeps the cursors of live matches valid: a
    cursor names its nodes by their paths, and those that vanish are dropped.
    """

    def __init__(self) -> None:
        """Make a trie without conditions."""
        self._root = _Node(())
        self._cache: dict[Cursor, dict[tuple[str, str], tuple[Cursor, tuple[str, ...]]]] = {}
        self._cached = 0
        self._forget()

    def insert(self, task: str, condition: Sequence[str]) -> None:
        """Add a condition of a task; the same one twice counts once.

        Args:
            task: The task's name.
            condition: Trigger ids, at least one.

        Raises:
            ValueError: The condition is empty.
        """
        if not condition:
            raise ValueError(f"task {task!r}: a trigger needs at least one id")
        node = self._root
        for trigger_id in condition:
            child = node.children.get(trigger_id)
            if child is None:
                child = node.children[trigger_id] = _Node((*node.path, trigger_id))
            node = child
        node.tasks.add(task)
        self._forget()

    def remove(self, task: str) -> None:
        """Remove all conditions of a task; unknown tasks are ignored.

        Args:
            task: The task's name.
        """
        _prune(self._root, task)
        self._forget()

    def advance(
        self, cursor: Cursor, event_id: str, page_id: str
    ) -> tuple[Cursor, tuple[str, ...]]:
        """Take one event of a device.

        Args:
            cursor: The device's ongoing matches; ``EMPTY_CURSOR`` at first.
            event_id: The event's id.
            page_id: The event's page.

        Returns:
            The new cursor, and the tasks that the event wakes: sorted, each
            once.
        """
        known = self._cache.get(cursor)
        if known is None:
            known = self._cache[cursor] = {}
        symbol = (event_id, page_id)
        found = known.get(symbol)
        if found is None:
            found = self._step(cursor, symbol)
            if self._cached >= _CACHE_MAX:
                self._forget()
                known = self._cache.setdefault(cursor, {})
            known[symbol] = found
            self._cached += 1
        return found

    def export_cursor(self, cursor: Cursor) -> list[list[str]]:
        """Return a cursor as plain lists, for storing.

        Args:
            cursor: A device's ongoing matches.
        """
        return [list(path) for path in cursor]

    def import_cursor(self, paths: Iterable[Sequence[str]]) -> Cursor:
        """Return the cursor of stored paths; nodes that are gone are dropped.

        Args:
            paths: What ``export_cursor`` gave.
        """
        found = (tuple(path) for path in paths)
        return tuple(sorted(path for path in found if self._node(path) is not None))

    def _step(self, cursor: Cursor, symbol: tuple[str, str]) -> tuple[Cursor, tuple[str, ...]]:
        fired: set[str] = set()
        buffered: set[Path] = set()
        static = [self._root]
        dynamic = [node for path in cursor if (node := self._node(path)) is not None]
        for parent in static + dynamic:
            for trigger_id in symbol:
                node = parent.children.get(trigger_id)
                if node is not None:
                    fired |= node.tasks
                    if node.children:
                        buffered.add(node.path)
        return tuple(sorted(buffered)), tuple(sorted(fired))

    def _node(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for trigger_id in path:
            node = node.children.get(trigger_id) if node is not None else None
        return node

    def _forget(self) -> None:
        self._cache = {}
        self._cached = 0


def _prune(node: _Node, task: str) -> bool:
    node.tasks.discard(task)
    for trigger_id, child in list(node.children.items()):
        if _prune(child, task):
            del node.children[trigger_id]
    return not node.tasks and not node.children
