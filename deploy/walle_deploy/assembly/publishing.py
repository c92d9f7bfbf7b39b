"""From a tag to something that can be released: built, signed, stored, known."""

from collections.abc import Callable, Sequence

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.model.releases import VersionFiles
from walle_deploy.tasks.building import build_version
from walle_deploy.tasks.groups import Group
from walle_deploy.trust.publishing import ExclusiveFile, publish_version
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.faults import crash_point


class Published(msgspec.Struct, frozen=True):
    """What was published."""

    ref: TaskRef
    commit: str
    files: VersionFiles


def publish_tag(
    group: Group,
    ref: TaskRef,
    repository: TrustedRepository,
    make_known: Callable[[str, str, VersionFiles], object],
    pythons: Sequence[str] = (),
) -> Published:
    """Build a version from its tag, sign it, and let releases know it; blocks.

    Done again, also after a kill in the middle, it changes nothing that is there.

    ``make_known`` comes last; ``pythons`` are other interpreters that devices have.

    Raises:
        ConflictError: The version was published with other files, or its tag was moved.
        WalleError: It cannot be built, or signed, or the store does not answer.
    """
    built = build_version(group, ref, pythons)
    crash_point("publish.built")
    exclusive = [
        ExclusiveFile(owner, file.resource, built.contents[file.target])
        for owner, own in built.files.exclusive.items()
        for file in own
    ]
    files = publish_version(repository, ref, built.package, exclusive)
    crash_point("publish.signed")
    make_known(ref.name, ref.version, files)
    return Published(ref, built.commit, files)
