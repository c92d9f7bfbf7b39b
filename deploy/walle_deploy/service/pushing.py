"""From offers to a push: the files whose addresses a device gets.

A profile may lie, so it decides what is offered, but never what may be read. Addresses of exclusive
files are signed for the device that asked. A user's own files are named only if another party than
the device vouches for the user.

The service stores no receipts: a device states what it holds. A lie harms only the liar, because
reports without a receipt are not counted.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final
from urllib.parse import urljoin

import msgspec

from walle_deploy.distribution.signed_urls import UrlSigner
from walle_deploy.model.held import is_fresh
from walle_deploy.model.owners import owner_of_user
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import Push, PushedFile, PushedTask
from walle_deploy.model.receipts import Receipt
from walle_deploy.model.releases import ReleaseTable
from walle_deploy.policy.classes import Look
from walle_deploy.policy.rows import Offer, Standing
from walle_deploy.service.settings import ServiceSpec
from walle_deploy.store.receipt_keys import StoredReceiptKeys

_NONE: Final[tuple[PushedFile, ...]] = ()
_NOWHERE: Final = Standing()


class PushBuilder:
    """Builder of the pushes of one table."""

    def __init__(self, table: ReleaseTable, spec: ServiceSpec, signer: UrlSigner | None) -> None:
        """Keep the arguments; without a signer no exclusive files are offered."""
        self._files = table.files
        self._spec = spec
        self._signer = signer
        # at most one entry for each release and each stable version
        self._shared: dict[Offer, PushedTask | None] = {}

    def build(self, offers: Iterable[Offer], profile: DeviceProfile, vouched: str) -> Push | None:
        """Return the push, or None if none of its versions is available.

        ``vouched`` is the signed-in user according to a trusted party; empty for none.
        """
        tasks = [
            pushed
            for offer in offers
            if (pushed := self._task(offer, profile, vouched)) is not None
        ]
        return Push(tuple(tasks), self._spec.metadata) if tasks else None

    def _task(self, offer: Offer, profile: DeviceProfile, vouched: str) -> PushedTask | None:
        try:
            task = self._shared[offer]
        except KeyError:
            task = self._shared[offer] = self._shared_of(offer)
        if task is None or not offer.version:
            return task
        own = self._files[f"{offer.task}@{offer.version}"].exclusive
        if not own or self._signer is None:
            return task
        files = own.get(profile.device, _NONE)
        if vouched and vouched == profile.user:
            files += own.get(owner_of_user(vouched), _NONE)
        if not files:
            return task
        signed = tuple(self._signed(file, profile.device, self._signer) for file in files)
        return msgspec.structs.replace(task, files=task.files + signed)

    def _shared_of(self, offer: Offer) -> PushedTask | None:
        """Return the part that is the same for all devices."""
        if not offer.version:
            return PushedTask(offer.task, "", offer.release_id)
        published = self._files.get(f"{offer.task}@{offer.version}")
        if published is None:
            return None  # the version is not available to any device
        files = tuple(
            msgspec.structs.replace(file, url=urljoin(self._spec.cdn, file.url))
            for file in published.shared
        )
        return PushedTask(offer.task, offer.version, offer.release_id, files)

    def _signed(self, file: PushedFile, device: str, signer: UrlSigner) -> PushedFile:
        # the signature excludes host and folder of the CEN, because a proxy may change them
        url = urljoin(self._spec.cen, signer.sign(file.url, device))
        return msgspec.structs.replace(file, url=url, audience="exclusive")


def receipts_due(
    source: StoredReceiptKeys,
    tasks: Container[str],
    look: Look,
    pushed: Mapping[str, str],
) -> dict[str, str]:
    """Return the receipts that a device needs, by task; never blocks.

    ``tasks`` are the tasks that the service knows; no others have receipts. ``pushed`` has the
    versions by task that the same answer pushes: each comes with a receipt.
    """
    profile = look.facts.profile
    held = profile.receipts
    if held is None:
        return {}
    now_ms = source.now_ms()
    is_ours = source.keys.has(held.keys)
    is_young = is_ours and is_fresh(held.since_hour, now_ms)
    versions = {**profile.tasks, **pushed} if pushed else profile.tasks
    standings = look.standings(versions)
    if is_young and not pushed and not held.others and not standings:
        return {}
    # for all other versions the device holds a young receipt that names no release
    candidates = {**pushed, **held.others, **standings} if is_young else versions
    due = {}
    for task in candidates:
        version = versions.get(task)
        if not version or task not in tasks:
            continue
        standing = standings.get(task, _NOWHERE)
        if task not in pushed:
            held_receipt = held.others.get(task)
            if held_receipt is None:
                is_good = is_young and not standing.release_id
            else:
                is_same = (held_receipt.release, held_receipt.group) == standing
                is_good = is_ours and is_same and is_fresh(held_receipt.hour, now_ms)
            if is_good:
                continue
        due[task] = source.keys.issue(Receipt(profile.device, task, version, *standing, now_ms))
    return due
