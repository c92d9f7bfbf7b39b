"""A release store with a fleet's releases, and what its devices ask a service of that store."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from msgspec.structs import replace

from release_parts.fleet import Fleet
from release_parts.proving import bearer
from release_parts.tables import RELAYED
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.held import HOUR_MS, HeldReceipt, HeldReceipts
from walle_deploy.model.profile import DeviceProfile, encode_profile, with_versions
from walle_deploy.model.receipts import Receipt, peek
from walle_deploy.model.releases import ActiveRelease
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.policy.rows import Standing
from walle_deploy.store.adapters import StoredTables
from walle_deploy.store.opening import open_store
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.store.rows import StoredRelease
from walle_stream.ports import ReportFrame
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.report_batch import encode_batch
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

_WATCHED_EACH: Final = 40
"""Of a device's ten tasks, with four releases each, one has a release in progress."""


class Device(NamedTuple):
    """A device of the fleet, up to date, and what a service gave it."""

    profile: DeviceProfile
    behind: DeviceProfile
    """The same with an older version of one task."""
    reports: bytes
    """Body of a frame: what its task in progress did."""


def stock(address: str, fleet: Fleet) -> list[Device]:
    """Fill a new store with a fleet's releases; return the devices that miss one of them.

    Args:
        address: Of the store.
        fleet: Of ``mixed_fleet``.
    """
    with closing(open_store(address)) as store:
        with store.writing() as transaction:
            for name, files in fleet.table.files.items():
                transaction.put_version(*name.split("@"), files)
            for number, each in enumerate(fleet.table.releases):
                transaction.put_release(_stored(_watched(each, number)))
        table = StoredTables(store).load()
        source = StoredReceiptKeys(store)
        source.refresh()
        index = ReleaseIndex(table, Sources())
        made = (_device(each, index, source) for each in fleet.profiles)
        return [each for each in made if each is not None]


def _watched(release: ActiveRelease, number: int) -> ActiveRelease:
    # one of those for half of the devices
    if number % _WATCHED_EACH != 2 or release.stage == "full":  # noqa: PLR2004
        return release
    return replace(release, stage="gray", percent=50.0, is_watched=True, before="v1", priority=9)


def _stored(release: ActiveRelease) -> StoredRelease:
    return StoredRelease(
        release_id=release.release_id,
        task=release.task,
        version=release.version,
        revision=1,
        is_open=False,  # it stays as it is: no controller takes it on
        created_ms=release.created_ms,
        state="{}",
        offer=release,
    )


def _device(asked: DeviceProfile, index: ReleaseIndex, source: StoredReceiptKeys) -> Device | None:
    offers = {each.task: each.version for each in index.decide(asked)}
    if not offers:
        return None
    hashed, versions = id_hash(asked.device), {**asked.tasks, **offers}
    standings = index.look(asked, hashed).standings(versions)
    now_ms = source.now_ms()

    def token(task: str) -> str:
        standing = standings.get(task, Standing())
        return source.keys.issue(Receipt(asked.device, task, versions[task], *standing, now_ms))

    hour, task = now_ms // HOUR_MS, min(standings, default=min(offers))
    held = HeldReceipts(
        hour,
        {each: HeldReceipt(hour, *standing) for each, standing in standings.items()},
        [peek(token(task))[0]],
    )
    profile = with_versions(asked, versions, held)
    # of the same class, as versions are no part of it
    behind = with_versions(asked, {**versions, min(offers): "v0"}, held)
    return Device(profile, behind, _reports(profile, task, standings, token(task), now_ms))


def _reports(
    profile: DeviceProfile, task: str, standings: dict[str, Standing], token: str, now_ms: int
) -> bytes:
    release, group = standings.get(task, Standing())
    runs = [DeviceRuns(profile.device, 3, receipt=token)]
    times = {bucket_of(700.0 + len(profile.model)): 3}
    report = TaskReport(
        task, profile.tasks[task], now_ms, now_ms, runs, times, release=release, group=group
    )
    [body] = encode_reports([report], "zstd")
    return body


def proofs(devices: Sequence[Device], key: SigningKey) -> dict[str, str]:
    """Return by device the line with its token: one for all that it asks.

    Args:
        devices: Whose.
        key: Signs.
    """
    names = [each.profile.device for each in devices]
    return {name: bearer(key, "device", name) for name in names}


def checks(profiles: Sequence[DeviceProfile], proven: Mapping[str, str]) -> Iterator[bytes]:
    """Yield checks without end.

    Args:
        profiles: That are asked for, in turn.
        proven: Of ``proofs``; empty: they have none.
    """
    made = []
    for each in profiles:
        head = f"GET /v1/check HTTP/1.1\r\nhost: localhost\r\n{proven.get(each.device, '')}"
        made.append(f"{head}walle-profile: {encode_profile(each)}\r\n\r\n".encode())
    return itertools.cycle(made)


def reports(devices: Sequence[Device], proven: Mapping[str, str]) -> Iterator[bytes]:
    """Yield reports without end: each device posts its own, each time a frame that is new.

    Args:
        devices: Whose.
        proven: As for ``checks``.
    """
    names = [each.profile.device for each in devices]
    made = [
        (_post(proven[name]), _directory(name), each)
        for name, each in zip(names, devices, strict=True)
    ]
    for number in itertools.count():
        for head, directory, each in made:
            yield _posted(head, [ReportFrame(directory, 0, number, each.reports)])


def relayed(devices: Sequence[Device], key: SigningKey) -> Iterator[bytes]:
    """Yield batches of ``RELAYED`` reports of as many devices without end, as a relay posts them.

    Args:
        devices: Whose.
        key: Of the relay's token.
    """
    head, turn = _post(bearer(key, "relay", "cloud")), itertools.cycle(devices)
    for number in itertools.count():
        bodies = [each.reports for each in itertools.islice(turn, RELAYED)]
        first = number * RELAYED
        yield _posted(
            head,
            [ReportFrame("f" * 16, 0, first + place, body) for place, body in enumerate(bodies)],
        )


def _directory(device: str) -> str:
    return f"{id_hash(device):016x}"


def _post(proof: str) -> str:
    return f"POST /v1/reports HTTP/1.1\r\nhost: localhost\r\n{proof}"


def _posted(head: str, frames: list[ReportFrame]) -> bytes:
    batch = encode_batch(frames)
    return f"{head}content-length: {len(batch)}\r\n\r\n".encode() + batch
