"""Checks of devices in hosts' data directories."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ReleaseTable
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.testing.chaos.plan import OWN_TASK, TASK
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.app.queries.query import features_lines, open_partitions, run_state
from walle_stream.ports import InstalledTask
from walle_stream.stream.snapshots import DeviceSnapshot
from walle_stream.vm.package.reader import read_package

# counters of events alone, whatever tasks they wake
_COUNTERS = (
    "source_rows",
    "accepted_rows",
    "duplicate_rows",
    "late_rows",
    "dead_letter_rows",
    "devices",
    "events",
    "late_events",
    "duplicate_events",
    "page_sequences",
    "timed_out_pages",
)


def wanted_versions(table: ReleaseTable, profiles: Sequence[DeviceProfile]) -> dict[str, str]:
    """Return the version of the task that each device should have; empty for none."""
    index, found = ReleaseIndex(table, Sources()), {}
    for profile in profiles:
        versions = [each.version for each in index.decide(profile) if each.task == TASK]
        found[profile.device] = versions[0] if versions else ""
    return found


def wrong_devices(data_dir: Path, table: ReleaseTable, wanted: Mapping[str, str]) -> Iterator[str]:
    """Check the devices of a host that has ended.

    Yields:
        Findings, one line each.
    """
    packages = data_dir / "packages"
    yield from _altered(packages)
    tasks = _installed(data_dir, wanted)
    for device, version in wanted.items():
        found = tasks.get(device)
        ref = TaskRef.parse(found.origin) if found is not None else None
        if found is None or ref is None:
            if version:
                yield f"{device} has no version of {TASK}, the policy says {version}"
            continue
        if (ref.name, ref.version) != (TASK, version):
            yield f"{device} has {ref}, the policy says {version or 'none'}"
            continue
        yield from _wrong_package(device, packages / found.package, ref, table)


def _installed(data_dir: Path, devices: Mapping[str, str]) -> dict[str, InstalledTask]:
    found: dict[str, InstalledTask] = {}
    name = TaskRef.parse(TASK).task
    for _, store in open_partitions(data_dir):
        rows = PartitionRows(store)
        for device in devices:
            row = rows.device(device)
            task_set = "" if row is None else DeviceSnapshot.decoded(row).task_set
            if not task_set:
                continue
            task = (rows.task_set(task_set) or {}).get(name)
            if task is not None:
                # a device in two partitions is reported as a wrong version
                found[device] = (
                    task
                    if device not in found
                    else InstalledTask("two", (), "", origin="shop/two@two")
                )
    return found


def _altered(packages: Path) -> Iterator[str]:
    for path in packages.iterdir() if packages.exists() else ():
        if path.name.startswith("."):
            yield f"{path}: is written only in part"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
            yield f"{path}: does not match the hash in its name"


def _wrong_package(device: str, path: Path, ref: TaskRef, table: ReleaseTable) -> Iterator[str]:
    files = table.files.get(str(ref))
    if files is None or files.shared[0].sha256 != path.name:
        yield f"{device} has {ref} with the package {path.name[:12]}, which was not published"
    elif not path.exists():
        yield f"{device} has {ref}, but its package {path.name[:12]} is missing"
    elif read_package(path).manifest.task.version != ref.version:
        yield f"{device} has {ref}, but its package has another version"


def event_lines(data_dir: Path) -> dict[str, Sequence[bytes]]:
    """Return the results that depend on the events alone, whatever was installed when.

    Args:
        data_dir: Of a host that has ended, or of the run without kills.
    """
    features = []
    for line in features_lines(data_dir, task=OWN_TASK):
        found = msgspec.json.decode(line)
        # numbers run across all tasks
        del found["sequence_number"]
        features.append(msgspec.json.encode(found))
    counters = run_state(data_dir).counters
    counts = [f"{name}: {getattr(counters, name)}".encode() for name in _COUNTERS]
    return {"features": features, "counters": counts}


def wrong_features(data_dir: Path) -> Iterator[str]:
    """Check that a device's features are complete: numbers without gaps, visits one by one.

    Yields:
        Findings, one line each.
    """
    numbers: dict[str, int] = defaultdict(int)
    visits: dict[str, int] = defaultdict(int)
    own = TaskRef.parse(TASK).task
    for line in features_lines(data_dir):
        found = msgspec.json.decode(line)
        device, number = found["device_id"], found["sequence_number"]
        if number != numbers[device] + 1:
            yield f"{device}: feature {number} follows {numbers[device]}"
        numbers[device] = number
        if found["task"] == own:
            visit = found["feature"]["visit"]
            if visit != visits[device] + 1:
                yield f"{device}: visit {visit} follows {visits[device]} ({found['task_version']})"
            visits[device] = visit
