"""Counts of a partition's runs, and reports of them for monitoring of tasks.

Reports are not features: they use frame numbers and bytes, but no number, row or byte of a feature
or state. They go up in a commit of the partition, so that each is sent once, even if the next owner
of the outbox sends it. Counts since the last report are only in memory, and are lost if the host
dies.

A turn's runs count when the turn has committed. A retried turn counts once.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.attempts import QUARANTINED
from walle_stream.actors.turns.turn import Turn
from walle_stream.clock import wall_ms
from walle_stream.ports import Proof, ProofOf
from walle_stream.vm.results import GroupResult
from walle_stream.vm.task_pool import STOPPED
from walle_stream.wire.buckets import bucket_of, timed_bucket
from walle_stream.wire.reports import FRAME_DEVICES, DeviceRuns, TaskReport, encode_reports

_CLASSES_MAX: Final = 16  # of one device and report; all others are one
_OTHER: Final = "(other)"
_KNOWN_SIZES_MAX: Final = 4_096
_US: Final = 1_000.0

type _Label = tuple[str, str]  # task and version as the cloud knows them


class Reports(Part):
    """Reports of one partition; counts outlive restarts."""

    def __init__(
        self,
        labels: Mapping[str, _Label],
        every_ms: int,
        now_ms: int,
        compression: str = "zstd",
        proof_of: ProofOf | None = None,
    ) -> None:
        """Start without counts.

        Each program is reported under a name and a version; others are not reported. An opening
        adds the names of installed programs. Times are of the wall clock. ``proof_of`` returns the
        receipts that go with devices' reports.
        """
        self._labels = labels
        self._proof_of = proof_of or _nothing
        self._every_ms = every_ms
        self._compression = compression
        self._since_ms = now_ms
        self._counts: dict[_Label, _Counts] = {}
        self._turn: list[tuple[_Label, Sequence[GroupResult], int]] = []
        self._taken_ms: int | None = None  # when the bodies of the current commit were made

    def add(self, program: str, results: Sequence[GroupResult], took_ms: float) -> None:
        """Record a call's results; they count when the turn commits.

        The results are borrowed until then; ``took_ms`` is for the whole call.
        """
        label = self._labels.get(program)
        runs = sum(len(group.runs) for group in results)
        if label is not None and runs:
            self._turn.append((label, results, timed_bucket(took_ms * _US, runs)))

    def add_refusal(self, label: _Label, device_id: str, error: str) -> None:
        """Count a refused version as one failed run of it.

        The label is task and version as the cloud knows them; ``error`` is the class of the
        failure.
        """
        self._of(label).add_refusal(device_id, error)

    def due(self, now_ms: int, *, is_last: bool = False) -> list[bytes]:
        """Return the report bodies for the current commit, usually none.

        They have the counts of earlier commits, which are reset when this one has committed.
        ``is_last`` reports at once: no other report follows for long.
        """
        if not self.is_due(now_ms, is_last=is_last):
            return []
        self._taken_ms = now_ms
        from_ms = min(self._since_ms, now_ms)  # a wall clock may be set back
        reports = [
            TaskReport(*label, from_ms, now_ms, devices, latency, output, *standing)
            for label, counts in self._counts.items()
            for standing, group in counts.groups.items()
            for devices, latency, output in group.parts()
        ]
        return list(encode_reports(reports, self._compression))

    def is_due(self, now_ms: int, *, is_last: bool = False) -> bool:
        """Return whether ``due`` would return a body."""
        if not self._counts:
            return False
        passed_ms = now_ms - self._since_ms
        is_large = sum(len(count.devices) for count in self._counts.values()) >= FRAME_DEVICES
        return is_last or is_large or not 0 <= passed_ms < self._every_ms

    def restart(self, opening: Opening) -> None:
        """Forget the turn: nothing of it was committed."""
        self._turn, self._taken_ms = [], None
        # existing counts keep their names
        self._labels = opening.sets.labels

    def idle(self, turn: Turn) -> bool:
        """Return whether a report is due."""
        return self.is_due(wall_ms(), is_last=turn.is_last)

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:  # noqa: ARG002 - part signature
        """Make the frames of a report that is due."""
        turn.bodies += self.due(wall_ms(), is_last=turn.is_last)

    def committed(self, turn: Turn) -> None:  # noqa: ARG002 - part signature
        """Count the turn's runs, and reset the counts that it has sent."""
        if self._taken_ms is not None:
            self._counts, self._since_ms, self._taken_ms = {}, self._taken_ms, None
        for label, results, bucket in self._turn:
            self._of(label).add(results, bucket)
        self._turn = []

    def _of(self, label: _Label) -> "_Counts":
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = _Counts(label, self._proof_of)
        return counts


def _nothing(device_id: str, task: str, version: str) -> Proof:  # noqa: ARG001 - a ProofOf
    return Proof()


class _Counts:
    def __init__(self, label: _Label, proof_of: ProofOf) -> None:
        self._label = label
        self._proof_of = proof_of
        self.devices: dict[str, tuple[DeviceRuns, _Group]] = {}
        self.groups: dict[tuple[str, str], _Group] = {}

    def add(self, results: Sequence[GroupResult], bucket: int) -> None:
        devices, known = self.devices, _buckets_of_sizes
        last: _Group | None = None
        runs = 0
        for result in results:
            device, group = devices.get(result.device_id) or self._begin(result.device_id)
            if group is not last:
                if last is not None:
                    last.add_time(bucket, runs)
                last, output, runs = group, group.output, 0
            device.runs += len(result.runs)
            runs += len(result.runs)
            for run in result.runs:
                if not run.ok:
                    _add_failure(device, run.error)
                    continue
                size = 1
                for feature, encoding in run.emits:
                    size += len(feature) + len(encoding)
                in_bucket = known.get(size)
                if in_bucket is None:
                    in_bucket = _remember(size)
                output[in_bucket] = output.get(in_bucket, 0) + 1
        if last is not None:
            last.add_time(bucket, runs)

    def add_refusal(self, device_id: str, error: str) -> None:
        device, _ = self.devices.get(device_id) or self._begin(device_id)
        device.runs += 1
        _add_failure(device, error)

    def _begin(self, device_id: str) -> "tuple[DeviceRuns, _Group]":
        # a later receipt is for the next report
        proof = self._proof_of(device_id, *self._label)
        group = self.groups.setdefault((proof.release, proof.group), _Group())
        device = DeviceRuns(device_id, 0, {}, receipt=proof.receipt)
        group.devices.append(device)
        standing = self.devices[device_id] = device, group
        return standing


class _Group:
    """Devices whose receipts name the same group of the same release."""

    def __init__(self) -> None:
        self.devices: list[DeviceRuns] = []
        self.output: dict[int, int] = {}
        self._latency: dict[int, int] = {}

    def add_time(self, bucket: int, runs: int) -> None:
        self._latency[bucket] = self._latency.get(bucket, 0) + runs

    def parts(self) -> list[tuple[list[DeviceRuns], dict[int, int], dict[int, int]]]:
        """Split the counts into parts of a frame's size."""
        if len(self.devices) <= FRAME_DEVICES:
            return [(self.devices, self._latency, self.output)]
        parts = []
        latency, output = dict(self._latency), dict(self.output)
        for start in range(0, len(self.devices), FRAME_DEVICES):
            part = self.devices[start : start + FRAME_DEVICES]
            runs = sum(device.runs for device in part)
            # durations are not kept by device, so any share of that size is as good
            parts.append((part, _taken(latency, runs), _taken(output, runs)))
        return parts


_buckets_of_sizes: Final[dict[int, int]] = {}


def _remember(size: int) -> int:
    if len(_buckets_of_sizes) >= _KNOWN_SIZES_MAX:
        _buckets_of_sizes.clear()
    bucket = _buckets_of_sizes[size] = bucket_of(size)
    return bucket


def _add_failure(device: DeviceRuns, error: str) -> None:
    failures, name = device.failures, error[:256] or _OTHER
    if name not in failures and len(failures) >= _CLASSES_MAX:
        name = _OTHER
    failures[name] = failures.get(name, 0) + 1
    device.strikes += error in STOPPED
    device.crashes += error == QUARANTINED


def _taken(buckets: dict[int, int], runs: int) -> dict[int, int]:
    taken: dict[int, int] = {}
    for bucket in sorted(buckets):
        count = min(buckets[bucket], runs - sum(taken.values()))
        if count <= 0:
            break
        taken[bucket] = count
        buckets[bucket] -= count
        if not buckets[bucket]:
            del buckets[bucket]
    return taken
