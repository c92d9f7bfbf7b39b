"""Where a repository's roles stand."""

from typing import Any, Final

import msgspec

from walle_deploy.trust.current import CurrentMetadata
from walle_deploy.trust.keys import KeyFolder
from walle_deploy.trust.roles import BINS
from walle_deploy.trust.signing import keys_of

_TOP: Final = ("root", "targets", "snapshot", "timestamp")


class RoleStatus(msgspec.Struct, frozen=True):
    """One role."""

    role: str
    version: int
    """Of the bins the highest; 0 when there is none."""
    expires_ms: int
    """Epoch milliseconds; of the bins the first; 0 when there is none."""
    keys: tuple[str, ...]
    threshold: int
    """How many of them must sign."""
    keys_here: int
    """How many of them lie in the key folder."""


class RepositoryStatus(msgspec.Struct, frozen=True):
    """A repository."""

    roles: tuple[RoleStatus, ...]
    targets: int
    bins: int
    expired: tuple[str, ...]
    """Roles whose metadata devices refuse now."""


def status_of(current: CurrentMetadata, keys: KeyFolder, now_ms: int) -> RepositoryStatus:
    """Look at everything that is signed.

    Raises:
        IntegrityError: A bin was altered.
    """
    bins = [metadata.signed for name in current.bin_names() if (metadata := current.read_bin(name))]
    signed: dict[str, list[Any]] = {role: [getattr(current, role).signed] for role in _TOP}
    signed[BINS] = bins
    roles = []
    for role, versions in signed.items():
        key_ids, threshold = keys_of(current, role)
        roles.append(
            RoleStatus(
                role,
                max((version.version for version in versions), default=0),
                min((int(version.expires.timestamp() * 1_000) for version in versions), default=0),
                tuple(key_ids),
                threshold,
                len(set(key_ids) & set(keys.key_ids(role))),
            )
        )
    expired = tuple(role.role for role in roles if 0 < role.expires_ms <= now_ms)
    return RepositoryStatus(tuple(roles), sum(len(b.targets) for b in bins), len(bins), expired)
