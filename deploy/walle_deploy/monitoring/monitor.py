"""Takes reports of devices and knows how each version of each task does.

At least once in, exactly once counted: frames of one partition come in order, and one whose
number was seen is dropped. Frames of one incarnation (one data directory) go to one worker;
workers count apart and are merged when somebody reads (``HealthReader``).

Time is when a report arrives, by the monitor's clock: those of devices may be wrong.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.counts import VersionCounts
from walle_deploy.monitoring.devices import EXACT_DEVICES
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.clock import wall_ms
from walle_stream.errors import EnvelopeError
from walle_stream.ports import ReportFrame
from walle_stream.wire.reports import TaskReport, decode_reports

type Span = Literal["total", "step", "window"]
"""Since a version was first reported, since its release's step began, or of the last minutes."""

WINDOW_MS: Final = 15 * 60_000
"""Length of the window."""

SLOT_MS: Final = 60_000
"""The window moves by so much."""

VERSIONS_MAX: Final = 10_000
"""Versions of tasks that a monitor counts; reports of further ones are refused."""

_NO_STEP: Final = b""


class MonitorCounts(msgspec.Struct):
    """What a monitor has done, for metrics."""

    frames: int = 0
    """That were counted."""
    reports: int = 0
    """In these."""
    frames_again: int = 0
    """That were counted before."""
    frames_refused: int = 0
    """Malformed."""
    reports_refused: int = 0
    """Of tasks or versions that there are not, or too many."""


class Monitor:
    """One worker's counts. Thread-safe; blocks on its store in ``open`` and ``flush``."""

    def __init__(
        self,
        store: SnapshotStore | None = None,
        worker: str = "0",
        *,
        exact_devices: int = EXACT_DEVICES,
        now_ms: Callable[[], int] = wall_ms,
        is_known: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Go on from what is stored; blocks.

        Args:
            store: Where counts go with ``flush``; None for memory alone.
            worker: Which one, without ``/``; two of one name would count over each other.
            exact_devices: Bound of exact numbers of devices.
            now_ms: The clock, epoch milliseconds.
            is_known: Says of a task and a version whether there is one: devices may send
                what they like. Any is where None.

        Raises:
            StoreError: The store cannot be read.
        """
        self.counts = MonitorCounts()
        self._store = store
        self._worker = worker
        self._exact_devices = exact_devices
        self._now_ms = now_ms
        self._is_known = is_known
        self._lock = threading.RLock()
        self._marks: dict[tuple[str, int], int] = {}
        self._versions: dict[str, _Version] = {}
        self._new_marks: set[tuple[str, int]] = set()
        self._changed: set[str] = set()
        self._tags: Mapping[str, bytes] = {}
        self._flushing = threading.Lock()
        if store is not None:
            self._load(store)

    def take(self, frames: Sequence[ReportFrame]) -> int:
        """Count frames; they are stored with the next ``flush``.

        Args:
            frames: Those of one partition in order; they may come again.

        Returns:
            How many were new.
        """
        with self._lock:
            return sum(self._take(frame) for frame in frames)

    def health(self, task: str, version: str, span: Span = "total") -> VersionHealth:
        """Return how a version does; all zero where nothing was reported.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
            span: Of what time.
        """
        with self._lock:
            found = self._versions.get(f"{task}@{version}")
            counts = found.of(span, self._now_ms()) if found else VersionCounts()
            return counts.health(task, version)

    def versions(self) -> dict[tuple[str, str], int]:
        """Return when the last report of each version came, epoch ms, by task and version."""
        with self._lock:
            return {_parted(name): each.seen_ms for name, each in self._versions.items()}

    def begin_step(self, task: str, version: str, tag: str) -> None:
        """Count a step of a release from here on.

        Workers of other processes learn of it at their next ``flush``.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
            tag: Names the step; one that is at hand already goes on.

        Raises:
            StoreError: It cannot be stored.
        """
        if self._store is not None:
            begin_step(self._store, task, version, tag)
        with self._lock:
            self._begin_steps({**self._tags, f"{task}@{version}": tag.encode()})

    def flush(self) -> None:
        """Store what changed since the last time, in one batch; blocks.

        Raises:
            StoreError: Nothing was stored; the next flush has it, too.
        """
        if self._store is not None:
            with self._flushing:  # what one wrote must not be overtaken by what was before
                self._flush(self._store)

    def _flush(self, store: SnapshotStore) -> None:
        tags = _tags(store)
        with self._lock:
            self._begin_steps(tags)
            rows = self._rows()
            marks, changed = self._new_marks, self._changed
            self._new_marks, self._changed = set(), set()
        try:
            if rows:
                store.save(rows)
        except BaseException:
            with self._lock:
                self._new_marks |= marks
                self._changed |= changed
            raise

    def _begin_steps(self, tags: Mapping[str, bytes]) -> None:
        self._tags = tags
        for name, tag in tags.items():
            found = self._versions.get(name)
            if found is not None and found.begin_step(tag, self._exact_devices):
                self._changed.add(name)

    def _take(self, frame: ReportFrame) -> bool:
        key = frame.incarnation, frame.partition
        if frame.number <= self._marks.get(key, -1):
            self.counts.frames_again += 1
            return False
        self._marks[key] = frame.number
        self._new_marks.add(key)
        try:
            reports = decode_reports(frame.body)
        except EnvelopeError:
            self.counts.frames_refused += 1
            return False
        self.counts.frames += 1
        for report in reports:
            self._count(report)
        return True

    def _count(self, report: TaskReport) -> None:
        name = f"{report.task}@{report.version}"
        is_new = name not in self._versions
        is_strange = self._is_known is not None and not self._is_known(report.task, report.version)
        # a name with two of them could not be told apart from another one
        if is_strange or "@" in report.task or (is_new and len(self._versions) >= VERSIONS_MAX):
            self.counts.reports_refused += 1
            return
        self.counts.reports += 1
        self._version(name).add(report, self._now_ms(), self._exact_devices)
        self._changed.add(name)

    def _version(self, name: str) -> "_Version":
        found = self._versions.get(name)
        if found is None:
            found = self._versions[name] = _Version(self._exact_devices)
            found.tag = self._tags.get(name, _NO_STEP)
        return found

    def _rows(self) -> dict[str, bytes]:
        worker = self._worker
        rows = {
            f"mark/{worker}/{key[0]}/{key[1]}": b"%d" % self._marks[key] for key in self._new_marks
        }
        for name in self._changed:
            each = self._versions[name]
            rows[f"count/{worker}/{name}"] = each.total.dump()
            rows[f"step/{worker}/{name}"] = msgspec.msgpack.encode((each.tag, each.step.dump()))
            slots = [(slot, counts.dump()) for slot, counts in each.slots.items()]
            rows[f"window/{worker}/{name}"] = msgspec.msgpack.encode(slots)
            rows[f"seen/{worker}/{name}"] = b"%d" % each.seen_ms
        return rows

    def _load(self, store: SnapshotStore) -> None:
        # marks of all workers: a partition may have gone to another one
        for key, value in store.load("mark/").items():
            _, _, incarnation, partition = key.split("/")
            place = incarnation, int(partition)
            self._marks[place] = max(int(value), self._marks.get(place, -1))
        self._versions = _load_versions(store, f"{self._worker}/")
        self._begin_steps(_tags(store))


class HealthReader:
    """Health of versions over all workers of a store. Any thread; blocks on the store."""

    def __init__(self, store: SnapshotStore, now_ms: Callable[[], int] = wall_ms) -> None:
        """Keep what to read.

        Args:
            store: That monitors flush to.
            now_ms: The clock, epoch milliseconds.
        """
        self._store = store
        self._now_ms = now_ms

    def health(self, task: str, version: str, span: Span = "total") -> VersionHealth:
        """Return how a version does, as of the workers' last flushes.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
            span: Of what time; ``step`` is that of the last ``begin_step``.

        Raises:
            StoreError: The store cannot be read.
        """
        name = f"{task}@{version}"
        tag = self._store.load(f"steps/{name}").get(f"steps/{name}", _NO_STEP)
        workers = [key.split("/", 2) for key in self._store.load("seen/")]
        merged = VersionCounts()
        for _, worker, found in workers:
            if found == name:
                each = _load_versions(self._store, f"{worker}/", name)[name]
                if span != "step" or each.tag == tag:
                    merged.merge(each.of(span, self._now_ms()))
        return merged.health(task, version)


def begin_step(store: SnapshotStore, task: str, version: str, tag: str) -> None:
    """Tell all workers of a store that a step of a release begins.

    Args:
        store: That monitors flush to.
        task: ``SCENARIO/TASK``.
        version: Of it.
        tag: Names the step.

    Raises:
        StoreError: It cannot be stored.
    """
    store.save({f"steps/{task}@{version}": tag.encode()})


class _Version:
    def __init__(self, exact_devices: int) -> None:
        self.total = VersionCounts(exact_devices)
        self.step = VersionCounts(exact_devices)
        self.tag = _NO_STEP
        self.slots: dict[int, VersionCounts] = {}  # ascending
        self.seen_ms = 0

    def add(self, report: TaskReport, now_ms: int, exact_devices: int) -> None:
        slot = now_ms // SLOT_MS
        if slot not in self.slots:
            self.slots[slot] = VersionCounts(exact_devices)
            for old in [each for each in self.slots if each <= slot - WINDOW_MS // SLOT_MS]:
                del self.slots[old]
        self.seen_ms = max(self.seen_ms, now_ms)
        for counts in (self.total, self.step, self.slots[slot]):
            counts.add(report)

    def begin_step(self, tag: bytes, exact_devices: int) -> bool:
        if tag == self.tag:
            return False
        self.tag, self.step = tag, VersionCounts(exact_devices)
        return True

    def of(self, span: Span, now_ms: int) -> VersionCounts:
        if span != "window":
            return self.total if span == "total" else self.step
        merged = VersionCounts()
        oldest = now_ms // SLOT_MS - WINDOW_MS // SLOT_MS
        for slot, counts in self.slots.items():
            if slot > oldest:
                merged.merge(counts)
        return merged


def _load_versions(store: SnapshotStore, worker: str, only: str = "") -> dict[str, _Version]:
    versions: dict[str, _Version] = {}
    counts = _rows_of(store, "count", worker, only)
    steps = _rows_of(store, "step", worker, only)
    windows = _rows_of(store, "window", worker, only)
    seen = _rows_of(store, "seen", worker, only)
    for name, dumped in counts.items():
        each = versions[name] = _Version(1)
        each.total = VersionCounts.load(dumped)
        each.tag, step = msgspec.msgpack.decode(steps[name], type=tuple[bytes, bytes])
        each.step = VersionCounts.load(step)
        slots = msgspec.msgpack.decode(windows[name], type=list[tuple[int, bytes]])
        each.slots = {slot: VersionCounts.load(part) for slot, part in slots}
        each.seen_ms = int(seen[name])
    return versions


def _rows_of(store: SnapshotStore, kind: str, worker: str, only: str) -> Mapping[str, bytes]:
    prefix = f"{kind}/{worker}"
    rows = store.load(prefix + only)
    names = {key[len(prefix) :]: value for key, value in rows.items()}
    return {only: names[only]} if only else names


def _tags(store: SnapshotStore) -> dict[str, bytes]:
    return {key.partition("/")[2]: tag for key, tag in store.load("steps/").items()}


def _parted(name: str) -> tuple[str, str]:
    task, _, version = name.partition("@")
    return task, version
