"""The trigger trie, which finds the tasks that an event wakes (Walle §"trigger management").

A condition is a sequence of trigger ids; a trigger id is an event id or a page
id. All conditions share one trie. Each event is first compared with the *static
pending list* (the children of the root, always armed), then with the *dynamic
pending list* (the next nodes of the ongoing matches). The next nodes are buffered,
so that one event cannot match two consecutive nodes, and become the new dynamic
list. An ongoing match ends at an event that does not continue it: strict contiguity.

The algorithm is ``_step``. Its results are cached per (cursor, event id, page id), so
the cost of an event does not depend on the number of tasks. Ids that no condition
names are filtered out before, and never enter the cache.

Invariants: on any stream, the fired tasks are those of
``testing.oracles.NaiveTriggers``. A cursor holds plain values only, so it can be
stored and outlives the trie. Place in the data flow: between ``DeviceSequence`` and
``RunTask``.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from walle_stream.errors import SpecFileError

type Path = tuple[str, ...]
"""A node of the trie, by the trigger ids that lead to it from the root."""

type Cursor = tuple[Path, ...]
"""The dynamic pending list: the last matched nodes, sorted, each once."""

EMPTY_CURSOR: Final[Cursor] = ()

type _Transition = tuple[Cursor, tuple[str, ...]]

_NOTHING: Final[_Transition] = (EMPTY_CURSOR, ())
_CACHE_MAX: Final = 65_536


class _Node:
    __slots__ = ("children", "path", "tasks")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.children: dict[str, _Node] = {}
        self.tasks: set[str] = set()


class TriggerTrie:
    """Conditions of all tasks of a set, for one thread.

    An ongoing match belongs to its path, not to a task. So cursors are also valid in a trie
    of other tasks. A match with an unknown path ends at the device's next event. A new task
    joins the ongoing matches whose path begins its condition.
    """

    __slots__ = ("_cache", "_cached_count", "_root", "ids")

    def __init__(self) -> None:
        """Make a trie without conditions."""
        self._root = _Node(())
        self.ids: set[str] = set()
        """The trigger ids of all conditions; only read."""
        self._forget()

    def insert(self, task: str, condition: Sequence[str]) -> None:
        """Add a condition of at least one trigger id; a repeated condition counts once.

        Raises:
            SpecFileError: The condition is empty, or a bare string.
        """
        if not condition or isinstance(condition, str):
            raise SpecFileError(
                f"task {task!r}: the trigger {condition!r} is not a list of event or page ids: "
                "name at least one, like [page_exit]"
            )
        path = tuple(condition)
        self.ids.update(path)
        node = self._root
        for trigger_id in path:
            child = node.children.get(trigger_id)
            if child is None:
                child = node.children[trigger_id] = _Node((*node.path, trigger_id))
            node = child
        node.tasks.add(task)
        self._forget()

    def advance(
        self, cursor: Cursor, event_id: str, page_id: str
    ) -> tuple[Cursor, tuple[str, ...]]:
        """Take one event of a device; return its new cursor and the woken tasks, sorted.

        The first cursor of a device is ``EMPTY_CURSOR``.
        """
        ids = self.ids
        if event_id not in ids:
            if page_id not in ids:
                return _NOTHING
            event_id = page_id  # an id that no condition names must not fill the cache
        elif page_id not in ids:
            page_id = event_id
        transitions = self._cache.get(cursor)
        if transitions is not None:
            step = transitions.get((event_id, page_id))
            if step is not None:
                return step
        return self._learn(cursor, event_id, page_id)

    def export_cursor(self, cursor: Cursor) -> list[list[str]]:
        """Return a cursor's paths as plain lists, in order, for storing.

        Paths that no condition has any more are kept, because they must end only at the device's
        next event.
        """
        return [list(path) for path in cursor]

    def import_cursor(self, paths: Iterable[Sequence[str]]) -> Cursor:
        """Return the cursor of paths that this or another trie has exported."""
        return tuple(sorted({tuple(path) for path in paths if path}))

    def _learn(self, cursor: Cursor, event_id: str, page_id: str) -> _Transition:
        if self._cached_count >= _CACHE_MAX:
            self._forget()
        step = self._step(cursor, (event_id, page_id))
        self._cache.setdefault(cursor, {})[event_id, page_id] = step
        self._cached_count += 1
        return step

    def _step(self, cursor: Cursor, ids: tuple[str, str]) -> _Transition:
        fired: set[str] = set()
        buffered: set[Path] = set()
        static = [self._root]
        dynamic = [node for path in cursor if (node := self._node(path)) is not None]
        for parent in static + dynamic:
            for trigger_id in ids:
                node = parent.children.get(trigger_id)
                if node is not None:
                    fired |= node.tasks
                    if node.children:
                        buffered.add(node.path)
        return tuple(sorted(buffered)), tuple(sorted(fired))

    def _node(self, path: Path) -> _Node | None:
        node = self._root
        for trigger_id in path:
            child = node.children.get(trigger_id)
            if child is None:
                return None
            node = child
        return node

    def _forget(self) -> None:
        self._cache: dict[Cursor, dict[tuple[str, str], _Transition]] = {}
        self._cached_count = 0
