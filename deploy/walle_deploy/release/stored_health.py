"""Health of versions by way of the store: monitoring writes it, any process reads it."""

from typing import Final

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.release.gates import Judgement, judge
from walle_deploy.release.state import ReleaseState
from walle_deploy.store.port import ReadTransaction, WriteTransaction
from walle_stream.errors import IntegrityError

_KIND: Final = "health"


def put_health(transaction: WriteTransaction, health: VersionHealth) -> None:
    """Keep a version's health in place of what was put before.

    Args:
        transaction: To write in.
        health: Of one version, over all devices and processes.
    """
    name = f"{health.task}@{health.version}"
    transaction.put_snapshot(_KIND, name, msgspec.json.encode(health))


def forget_health(transaction: WriteTransaction, task: str, version: str) -> None:
    """Put zeros in place of what was put of a version: another release looks at it anew.

    Args:
        transaction: To write in.
        task: ``SCENARIO/TASK``.
        version: Of it; empty for none.
    """
    if version:
        put_health(transaction, VersionHealth(task=task, version=version))


def judge_stored(transaction: ReadTransaction, state: ReleaseState) -> Judgement | None:
    """Return what a release's gates say of what was put last, None before the first offer.

    Raises:
        IntegrityError: What is there is no health.
    """
    if not state.offered_ms:
        return None
    spec = state.release.spec
    new = read_health(transaction, spec.task, spec.version)
    old = read_health(transaction, spec.task, state.before) if state.before else None
    return judge(spec.gates, new, old)


def read_health(transaction: ReadTransaction, task: str, version: str) -> VersionHealth:
    """Return what was put last of a version, or zeros.

    Args:
        transaction: To read in.
        task: ``SCENARIO/TASK``.
        version: Of it.

    Raises:
        IntegrityError: What is there is no health.
    """
    data = transaction.snapshots(_KIND).get(f"{task}@{version}")
    if data is None:
        return VersionHealth(task=task, version=version)
    try:
        return msgspec.json.decode(data, type=VersionHealth)
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"health of {task}@{version} in the release store: {error}") from error
