"""The facts that conditions test: a device's profile and the sources of the service."""

from pathlib import Path
from typing import Any, Final

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.policy.attributes import Attributes, AttributeSource, AttributeTable
from walle_deploy.policy.compact import CompactIds
from walle_deploy.policy.files import WatchedFile, read_ids
from walle_deploy.policy.hashing import id_hash

NOBODY: Final = Attributes()


class Sources:
    """Attribute source and files of ids, common to all policies of a process."""

    def __init__(self, attributes: AttributeSource | None = None) -> None:
        """Start without reading; without ``attributes`` nothing is known of any user."""
        self._attributes: WatchedFile[AttributeTable] | None = None
        if attributes is not None:
            self._attributes = WatchedFile(attributes.file, attributes.read)
        self._ids: dict[Path, WatchedFile[CompactIds]] = {}
        self._named_paths: set[Path] = set()
        self.changes = 0
        """Number of times that ``refresh`` found a change."""

    def attributes_of(self, user: str) -> Attributes:
        """Return a user's attributes, all empty if unknown; never blocks."""
        source = self._attributes
        if not user or source is None or source.known is None:
            return NOBODY
        return source.known.of(user) or NOBODY

    def ids(self, path: Path) -> WatchedFile[CompactIds]:
        """Return a file of ids; the first request reads it, and may block."""
        self._named_paths.add(path)
        file = self._ids.get(path)
        if file is None:
            file = self._ids[path] = WatchedFile(path, read_ids)
            file.refresh()
        return file

    def drop_unasked(self) -> None:
        """Drop the files of ids that were not requested since the last call.

        The call follows the making of a new index, which requested all files of its policies.
        """
        self._ids = {path: self._ids[path] for path in self._named_paths}
        self._named_paths = set()

    def refresh(self) -> None:
        """Read changed files again; blocks, so callers run it in a thread beside the event loop."""
        files: list[WatchedFile[Any]] = list(self._ids.values())
        if self._attributes is not None:
            files.append(self._attributes)
        for file in files:
            self.changes += file.refresh()

    @property
    def problems(self) -> tuple[str, ...]:
        """A line for each file that could not be read, with the reason."""
        problems = [file.problem for file in self._ids.values()]
        if self._attributes is not None:
            problems.append(self._attributes.problem)
        return tuple(filter(None, problems))


class Facts:
    """One device, from the view of the conditions of one decision."""

    __slots__ = ("_attributes", "_user_hash", "device_hash", "profile", "sources")

    def __init__(self, profile: DeviceProfile, sources: Sources, device_hash: int) -> None:
        """Keep the arguments; a user's attributes are looked up when a condition needs them."""
        self.profile = profile
        self.sources = sources
        self.device_hash = device_hash
        self._attributes: Attributes | None = None
        self._user_hash = -1

    @property
    def attributes(self) -> Attributes:
        """Attributes of the device's user."""
        if self._attributes is None:
            self._attributes = self.sources.attributes_of(self.profile.user)
        return self._attributes

    @property
    def user_hash(self) -> int:
        """``id_hash`` of the user's id."""
        if self._user_hash < 0:
            self._user_hash = id_hash(self.profile.user)
        return self._user_hash
