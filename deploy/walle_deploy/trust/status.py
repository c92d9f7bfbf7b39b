"""The state of a repository's roles."""

from typing import Any, Final

import msgspec

from walle_deploy.trust.current import CurrentMetadata
from walle_deploy.trust.keys import KeyFolder
from walle_deploy.trust.roles import BINS
from walle_deploy.trust.signing import keys_of

_TOP: Final = ("root", "targets", "snapshot", "timestamp")


class RoleStatus(msgspec.Struct, frozen=True):
    """State of one role."""

    role: str
    version: int
    """For bins the highest version; 0 without any."""
    expires_ms: int
    """Epoch milliseconds; for bins the earliest; 0 without any."""
    keys: tuple[str, ...]
    threshold: int
    """Number of keys that must sign."""
    keys_here: int
    """Number of its keys in the key folder."""


class RepositoryStatus(msgspec.Struct, frozen=True):
    """State of a repository."""

    roles: tuple[RoleStatus, ...]
    targets: int
    bins: int
    expired: tuple[str, ...]
    """Roles whose metadata has expired: devices refuse it."""


def status_of(current: CurrentMetadata, keys: KeyFolder, now_ms: int) -> RepositoryStatus:
    """Return the state of all signed metadata.

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
