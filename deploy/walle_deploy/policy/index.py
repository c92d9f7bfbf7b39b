"""The index over all releases, which decides about a device in a few microseconds.

Devices that all policies treat alike, except by identity, form a class. A class is made once, and
holds for each task the few releases that may admit such a device. A decision finds the class and
asks these releases. Its cost does not depend on the number of devices or files.

Releases for named devices or users are found by the name. Policies bound the number of classes by
what they distinguish, whatever devices make up. All caches are bounded as well. Property tests
compare the index with ``judging.choose``. The index is not for several threads at once.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable
from walle_deploy.policy.classes import DeviceClass, Look
from walle_deploy.policy.compiling import FIELDS, Compiler, guarded
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import MASK, id_hash, salt_key, share_limit
from walle_deploy.policy.judging import releases_by_task
from walle_deploy.policy.model import Policy
from walle_deploy.policy.rows import Names, Offer
from walle_deploy.policy.task_rows import CompiledRelease, TaskRows
from walle_deploy.policy.tree import Group, Guard

if TYPE_CHECKING:
    from walle_deploy.policy.truth import Truth

CLASSES_MAX: Final = 1_024
"""Most classes in memory; others are made again on demand."""

_VALUES_MAX: Final = 8_192
"""Most values of a field, and most kinds of values; a full cache starts again."""
_UNFIT_MAX: Final = 4_096

_get_fields: Final = attrgetter(*FIELDS)


class _Field:
    """A field that policies test, with its values grouped into kinds that all tests treat alike."""

    def __init__(self, number: int, compiler: Compiler) -> None:
        self.number = number
        self._compiler = compiler
        self.kinds: dict[Any, int] = {}
        """Numbers of kinds by value."""
        self.outcomes: list[tuple[Truth, ...]] = []
        """Results of the tests by kind."""
        self._known: dict[tuple[Truth, ...], int] = {}

    def forget(self) -> None:
        self.kinds.clear()
        self.outcomes.clear()
        self._known.clear()

    def kind_of(self, value: Any) -> int:
        kind = self.kinds.get(value)
        if kind is None:
            if len(self.kinds) >= _VALUES_MAX:
                self.kinds.clear()
            outcomes = self._compiler.outcomes(self.number, value)
            kind = self.kinds[value] = self._known.setdefault(outcomes, len(self._known))
            if kind == len(self.outcomes):
                self.outcomes.append(outcomes)
        return kind


class ReleaseIndex:
    """Decisions over one table; made again when the table changes."""

    def __init__(self, table: ReleaseTable, sources: Sources) -> None:
        """Compile all policies; takes milliseconds for a thousand releases.

        Raises:
            SpecFileError: A policy cannot be read.
        """
        self.generation = table.generation
        self._sources = sources
        self._compiler = Compiler(sources)
        self._table = table
        self._names = Names()
        self._tasks = [
            TaskRows(
                task,
                [compiled for release in releases for compiled in self._compiled(release)],
                self._names,
            )
            for task, releases in releases_by_task(table).items()
        ]
        self._gone = frozenset(
            (task, version) for task, gone in table.withdrawn.items() for version in gone
        )
        self.tasks = frozenset(releases_by_task(table))
        """Tasks in the table."""
        self._unfit: dict[str, set[int]] = {}
        self._fields = [_Field(number, self._compiler) for number in self._compiler.fields]
        self._classes: dict[tuple[int, ...], DeviceClass] = {}
        """Classes by the kinds of all fields."""

    def decide(self, profile: DeviceProfile) -> list[Offer]:
        """Return the offers whose versions a device does not have; never blocks."""
        return self.look(profile, id_hash(profile.device)).decide()

    def look(self, profile: DeviceProfile, hashed: int) -> Look:
        """Find the class of a device; ``hashed`` is the ``id_hash`` of its id; never blocks."""
        device_class = self._class_of(_get_fields(profile))
        if device_class.unfit:
            for release_id in device_class.unfit:
                known = self._unfit.setdefault(release_id, set())
                if len(known) < _UNFIT_MAX:
                    known.add(hashed)
        return Look(device_class, Facts(profile, self._sources, hashed))

    @property
    def unfit_devices(self) -> dict[str, int]:
        """Number of devices that asked and for whose Python a version was not checked, by release.

        The id is empty for the stable version. The number is at most 4,096 for each release.
        """
        return {release_id: len(known) for release_id, known in self._unfit.items()}

    @property
    def class_count(self) -> int:
        """Number of classes of devices in memory."""
        return len(self._classes)

    def _compiled(self, release: ActiveRelease) -> Iterator[CompiledRelease]:
        node = self._compiler.compile(Policy.of(release.policy), release.salt)
        interpreters = self._table.interpreters(release.task, release.version)
        code = self._compiler.compile_code(interpreters) if interpreters else None
        if release.stage == "beta" or release.devices:
            # named devices first, because the search for guards begins at the left
            named = guarded(Guard(is_user=False, ids=release.devices))
            yield CompiledRelease(release, code, Group(is_all=True, parts=(named, node)), 0, MASK)
        if release.stage != "beta":
            key, limit = salt_key(release.salt), share_limit(release.percent)
            yield CompiledRelease(release, code, node, key, limit, "new")

    def _class_of(self, values: tuple[Any, ...]) -> DeviceClass:
        try:
            return self._classes[
                tuple([field.kinds[values[field.number]] for field in self._fields])
            ]
        except KeyError:
            return self._new_class(values)

    def _new_class(self, values: tuple[Any, ...]) -> DeviceClass:
        for field in self._fields:
            if len(field.outcomes) >= _VALUES_MAX:
                field.forget()
                self._classes.clear()
        kinds = tuple([field.kind_of(values[field.number]) for field in self._fields])
        device_class = self._classes.get(kinds)
        if device_class is None:
            if len(self._classes) >= CLASSES_MAX:
                del self._classes[next(iter(self._classes))]
            outcomes: list[tuple[Truth, ...]] = [()] * len(FIELDS)
            for field, kind in zip(self._fields, kinds, strict=True):
                outcomes[field.number] = field.outcomes[kind]
            rows = [task.row(tuple(outcomes)) for task in self._tasks]
            device_class = DeviceClass(values, rows, self._gone, self._names)
            self._classes[kinds] = device_class
        return device_class

    def warm(self, before: "ReleaseIndex") -> None:
        """Make the classes that another index uses; may run beside that index's decisions."""
        seen = {field.number: field.kinds for field in before._fields}
        for field in self._fields:
            for value in list(seen.get(field.number, ())):
                field.kind_of(value)
        for device_class in list(before._classes.values()):  # noqa: SLF001 - of its own class
            self._class_of(device_class.example)
