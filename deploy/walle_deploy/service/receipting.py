"""Which receipts a device lacks, and these: nothing is kept of what was issued.

A device says what it holds (``model.receipts.HeldReceipts``). A lie harms only the liar: where it
says to hold what it does not, its reports are not counted. Tasks without a release in progress
cost nothing where the device's oldest receipt is young.
"""

from collections.abc import Mapping
from typing import Final

from walle_deploy.model.held import is_fresh
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.receipts import Receipt
from walle_deploy.policy.index import ReleaseIndex, Standing
from walle_deploy.store.receipt_keys import StoredReceiptKeys

_NOWHERE: Final = Standing()


def receipts_due(
    source: StoredReceiptKeys,
    index: ReleaseIndex,
    profile: DeviceProfile,
    device_hash: int,
    pushed: Mapping[str, str],
) -> dict[str, str]:
    """Return the receipts that a device is to be given, by task; never blocks.

    ``pushed`` has versions by task that the same answer pushes: each comes with a receipt.
    """
    held = profile.receipts
    if held is None:
        return {}
    now_ms = source.now_ms()
    is_ours = source.keys.has(held.keys)
    is_young = is_ours and is_fresh(held.since_hour, now_ms)
    versions = {**profile.tasks, **pushed} if pushed else profile.tasks
    standings = index.standings(profile, device_hash, versions)
    if is_young and not pushed and not held.others and not standings:
        return {}
    # of all other versions the device has a receipt that is young, and names no release
    candidates = {**pushed, **held.others, **standings} if is_young else versions
    due = {}
    for task in candidates:
        version = versions.get(task)
        if not version or task not in index.tasks:
            continue
        standing = standings.get(task, _NOWHERE)
        if task not in pushed:
            said = held.others.get(task)
            if said is None:
                is_good = is_young and not standing.release_id
            else:
                is_same = (said.release, said.group) == standing
                is_good = is_ours and is_same and is_fresh(said.hour, now_ms)
            if is_good:
                continue
        due[task] = source.keys.issue(Receipt(profile.device, task, version, *standing, now_ms))
    return due
