"""A task package: one file with all that a device needs to run a task, as bytecode.

``NAME-VERSION.walle`` is a zip whose comment is a seal. Its members, in this
order, each deflated, dated 1980-01-01, with the mode 0644 of a regular file::

    manifest.json               what follows, see ``Manifest``; UTF-8
    code/TAG/modules.bin        marshalled [(module, is a package, marshalled code), ...]
                                by module: standard modules beyond the base
    code/TAG/script.bin         marshalled (code of the guarded script, allowed modules
                                that it imports, whether runs can share its globals)
    resources/NAME              files of the task, as they were

TAG is ``sys.implementation.cache_tag`` of an interpreter, such as
``cpython-314``; the TAGs ascend, and so do the NAMEs. The file ends with the
zip's end record (22 bytes) and its comment: the 13 bytes ``walle-sha256:`` and
64 lower-case hexadecimal digits, the SHA-256 of every byte before them.

There is no source text in it, no docstring of a standard module and no path of
the machine that built it; the same input gives the same bytes. Hashes find
damage, not malice: who may send a package to a device is for the deployment to
say, and unmarshalling a hostile one is as good as running it.

Reading is bounded and looks at every byte before anything is unmarshalled.
"""

import hashlib
import io
import marshal
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Mapping
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType
from typing import Annotated, Any, Final, Literal, Never, Self

import msgspec

from walle_stream.errors import PackageError
from walle_stream.vm.bytecode.check import check_code
from walle_stream.vm.guest import GUEST_API_VERSION
from walle_stream.vm.program import (
    CompiledProgram,
    Confinement,
    RunLimits,
    TaskProgram,
    pack_program,
)

FORMAT: Final = 1
"""Version of the layout above."""

MANIFEST: Final = "manifest.json"
"""Name of the first member."""

SUFFIX: Final = ".walle"
"""Of a package's file."""

SEAL: Final = b"walle-sha256:"
"""Begins the zip's comment; the digest's 64 digits follow."""

RESOURCE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
"""What a resource may be called: relative, no part of it begins with a dot."""

RESOURCE_NAME_MAX: Final = 200
"""Longest name of a resource."""

PACKAGE_MAX_BYTES: Final = 256 * 1024 * 1024
"""Largest package, and largest sum of its inflated members."""

MANIFEST_MAX_BYTES: Final = 4 * 1024 * 1024
"""Largest manifest."""

MEMBERS_MAX: Final = 1_100
"""Most members: 1,000 resources, two for each of a few interpreters, the manifest."""

CURRENT_TAG: Final = sys.implementation.cache_tag or sys.implementation.name
"""Which code this interpreter can run."""

_SEAL_BYTES: Final = len(SEAL) + 64
_END_BYTES: Final = 22 + _SEAL_BYTES
_LOCATOR_BYTES: Final = 20
_DIRECTORY_MAX_BYTES: Final = MEMBERS_MAX * 512
_UTF8_NAME: Final = 0x800
_PLAIN: Final = {0, stat.S_IFREG, stat.S_IFDIR}  # a folder is no member that a manifest can name
# everything that zipfile lets through from a file made to be wrong
_BROKEN: Final = (
    *(zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, LookupError),
    *(RuntimeError, ArithmeticError, MemoryError),
)
_AGAIN: Final = "it was altered or cut: get it again, or build it with walle task build"


type _Kind = Literal["bytecode", "built-in", "extension", "frozen"]
"""Where a standard module comes from; all but ``bytecode`` are the interpreter's own."""

_MIB: Final = 2**20
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Attempts = Annotated[int, msgspec.Meta(ge=1, le=10)]
_BackoffMs = Annotated[int, msgspec.Meta(ge=0, le=2_000)]
# as in a definition: a trie has no place for an empty trigger
_Trigger = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...],
    msgspec.Meta(min_length=1, max_length=64),
]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member, inflated."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """In lower-case hexadecimal digits."""
    size: _Count
    """Bytes."""


class PackagedLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``program.RunLimits`` as JSON, within the bounds of a definition."""

    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)]
    emits: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    log_lines: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    wall_time_ms: Annotated[int, msgspec.Meta(ge=10, le=3_600_000)]
    strikes: Annotated[int, msgspec.Meta(ge=1, le=1_000)]
    steps: Annotated[int, msgspec.Meta(ge=0, le=10**12)]
    state_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)]


class PackagedConfinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``program.Confinement`` as JSON, within the bounds of a definition."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=64 * _MIB, le=2**40)]
    cpu_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)]
    required: tuple[str, ...]

    @classmethod
    def of(cls, confinement: Confinement) -> Self:
        """Pack one."""
        required = tuple(sorted(confinement.required))
        return cls(confinement.memory_bytes, confinement.cpu_ms, required)

    def unpacked(self) -> Confinement:
        """Return it as programs have it."""
        return Confinement(self.memory_bytes, self.cpu_ms, frozenset(self.required))


class PackagedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The task's definition, whole: a host needs no YAML beside the package."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z", max_length=63)]
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    state_version: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    file: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f/\\]+\Z", max_length=255)]
    """The script's name without folders, for messages."""
    triggers: Annotated[tuple[_Trigger, ...], msgspec.Meta(min_length=1)]
    fields: tuple[str, ...] | None
    """Contents of events that the script reads; all when null."""
    config: dict[str, Any]
    limits: PackagedLimits
    pages: tuple[str, ...] | None = None
    """Only events on these pages wake the task; on any page when null."""
    isolation: Literal["shared", "device", "process"] = "shared"
    confinement: PackagedConfinement | msgspec.UnsetType = msgspec.UNSET
    """Of its processes; left out where it is the default."""
    entry: Literal["run"] = "run"
    """The function that is called for each page sequence."""
    on_error: tuple[_Attempts, _BackoffMs, bool] | msgspec.UnsetType = msgspec.UNSET
    """Attempts, pause, whether a dead letter is left. Left out where it is the default, so that
    versions before it read the package, too."""

    @property
    def file_name(self) -> str:
        """``NAME-VERSION.walle``; what no file name should hold becomes ``_``."""
        version = re.sub(r"[^A-Za-z0-9._+-]", "_", self.version)
        return f"{self.name}-{version}{SUFFIX}"


class Interpreter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the package holds for one version of bytecode."""

    magic: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
    """``importlib.util.MAGIC_NUMBER`` in hexadecimal digits."""
    python: str
    """Version of the interpreter that compiled it."""
    members: dict[str, Part]
    """``code/TAG/modules.bin`` and ``code/TAG/script.bin``."""
    modules: dict[str, _Kind]
    """Standard modules that the script's imports need beyond the base; those of the kind
    ``bytecode`` are in ``modules.bin``."""
    base: dict[str, _Kind]
    """Standard modules that every VM has: what the guest library itself needs."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``manifest.json``."""

    format: int
    guest_api: Annotated[int, msgspec.Meta(ge=1)]
    """``guest.GUEST_API_VERSION`` that the script was written for."""
    task: PackagedTask
    interpreters: dict[str, Interpreter]
    """By TAG."""
    resources: dict[str, Part]
    """By NAME."""


class TaskPackage(msgspec.Struct, frozen=True):
    """A package that was read and whose every hash is right."""

    file: str
    """For messages."""
    size_bytes: int
    """Of the whole file."""
    manifest: Manifest
    manifest_bytes: int
    """Size of its text."""
    parts: Mapping[str, bytes]
    """The other members by their full names, inflated."""
    packed_bytes: Mapping[str, int]
    """Size of each member in the file, deflated."""
    sha256: str
    """Of the whole file, in hexadecimal digits."""

    def code(self, tag: str = CURRENT_TAG) -> bytes:
        """Return ``script.bin``.

        Args:
            tag: For which interpreter.

        Raises:
            PackageError: The package is not for that interpreter.
        """
        return self._of_interpreter(tag, "script.bin")

    def standard_modules(self, tag: str = CURRENT_TAG) -> bytes:
        """Return ``modules.bin``.

        Args:
            tag: For which interpreter.

        Raises:
            PackageError: The package is not for that interpreter.
        """
        return self._of_interpreter(tag, "modules.bin")

    def resource(self, name: str) -> bytes:
        """Return a resource.

        Args:
            name: As in ``spec.resources``.

        Raises:
            PackageError: There is none of that name.
        """
        found = self.parts.get(f"resources/{name}")
        if found is None:
            known = ", ".join(self.manifest.resources) or "none"
            raise PackageError(
                f"{self.file}: there is no resource {name!r} in it, found {known}: "
                "name it in spec.resources",
                self.file,
                name,
            )
        return found

    def program(self, beside: Mapping[str, bytes] | None = None) -> CompiledProgram:
        """Return the program for this interpreter, as ``compile_program`` makes it.

        Args:
            beside: Resources that the package has not; of one name these.

        Raises:
            PackageError: The package is not for this interpreter, or its code
                cannot be read by it.
        """
        task = self.manifest.task
        member = f"code/{CURRENT_TAG}/script.bin"
        script = self.code()
        try:
            # every hash was looked at; who made it is trusted as a script's author is
            code, imports, shares_globals = marshal.loads(script)  # noqa: S302
        except (ValueError, TypeError, EOFError, MemoryError, RecursionError) as error:
            _refuse(self.file, f"its code cannot be read: {error}", member)
        if type(code) is not CodeType or type(imports) is not list:
            _refuse(self.file, "is not a script's code", member)
        findings = check_code(code)
        if findings:
            _refuse(self.file, f"its code may not run: {findings[0]}", member)
        resources = {name: self.resource(name) for name in self.manifest.resources}
        resources.update(beside or {})
        program = TaskProgram(
            task.name,
            task.version,
            "",
            task.file,
            task.config,
            RunLimits(*msgspec.structs.astuple(task.limits)),
            task.isolation,
            task.state_version,
            resources,
        )
        own = self.manifest.interpreters[CURRENT_TAG]
        kinds = {**own.base, **own.modules}
        runtime = sorted(own.base.keys() | {n for n, kind in kinds.items() if kind != "bytecode"})
        return pack_program(
            program,
            code,
            imports,
            shares_globals=bool(shares_globals),
            modules=(self.standard_modules(), runtime),
        )

    def _of_interpreter(self, tag: str, name: str) -> bytes:
        found = self.manifest.interpreters.get(tag)
        if found is None:
            known = ", ".join(self.manifest.interpreters)
            raise PackageError(
                f"{self.file}: expected code for {tag}, found {known}: "
                f"build it with --python {_version_of(tag)}",
                self.file,
            )
        if tag == CURRENT_TAG and found.magic != MAGIC_NUMBER.hex():
            raise PackageError(
                f"{self.file}: expected bytecode {MAGIC_NUMBER.hex()} of this {tag}, found "
                f"{found.magic} of Python {found.python}: build it with --python {sys.executable}",
                self.file,
            )
        if self.manifest.guest_api > GUEST_API_VERSION:
            raise PackageError(
                f"{self.file}: expected guest API {GUEST_API_VERSION} or older, found "
                f"{self.manifest.guest_api}: install a newer walle-stream here",
                self.file,
            )
        return self.parts[f"code/{tag}/{name}"]


def read_package(data_or_path: bytes | Path) -> TaskPackage:
    """Read a package and check every byte of it; unmarshals nothing.

    Args:
        data_or_path: Its bytes, or where it lies.

    Raises:
        PackageError: It is no package, or altered, cut, too large, or of a
            format that this version does not know.
    """
    file = "package" if isinstance(data_or_path, bytes) else str(data_or_path)
    data = data_or_path if isinstance(data_or_path, bytes) else _read_file(data_or_path, file)
    _check_end(file, data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = _checked_members(file, archive)
            manifest = _read_manifest(file, archive, infos)
            wanted = _wanted(file, manifest)
            _compare(file, wanted.keys(), infos.keys() - {MANIFEST})
            parts = {name: _part(file, archive, infos[name], wanted[name]) for name in wanted}
    except _BROKEN as error:
        if isinstance(error, PackageError):
            raise
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PackageError(f"{file}: is a broken zip ({text}): {_AGAIN}", file) from error
    found, digest = data[-64:], hashlib.sha256(data[:-64]).hexdigest().encode()
    if found != digest:
        _refuse(file, f"expected the seal {digest[:12]!r}..., found {found[:12]!r}...")
    packed = {name: info.compress_size for name, info in infos.items()}
    sha256 = hashlib.sha256(data).hexdigest()
    return TaskPackage(file, len(data), manifest, infos[MANIFEST].file_size, parts, packed, sha256)


def _refuse(file: str, text: str, member: str = "") -> Never:
    place = f"{file}: {member}" if member else file
    raise PackageError(f"{place}: {text}; {_AGAIN}", file, member)


def _version_of(tag: str) -> str:
    digits = tag.partition("-")[2]
    return f"{digits[:1]}.{digits[1:]}" if digits.isalnum() else tag


def _read_file(path: Path, file: str) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(PACKAGE_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or error
        raise PackageError(
            f"{file}: cannot be read: {text}; check the path, or make it with walle task build",
            file,
        ) from error
    return data


def _check_end(file: str, data: bytes) -> None:
    # the end record, before zipfile believes it
    if len(data) > PACKAGE_MAX_BYTES:
        raise PackageError(
            f"{file}: expected at most {PACKAGE_MAX_BYTES} bytes, found more: it is no package, "
            "or its resources are too large to travel with it",
            file,
        )
    if data[:4] != b"PK\3\4":
        raise PackageError(
            f"{file}: is not a task package: expected a zip, found {data[:4]!r} at its start; "
            "make one with walle task build",
            file,
        )
    end = data[-_END_BYTES:]
    if end[:4] != b"PK\5\6" or end[22 : 22 + len(SEAL)] != SEAL:
        _refuse(file, f"ends without its seal, at {len(data)} bytes")
    size_bytes = int.from_bytes(end[12:16], "little")
    locator = data[-_END_BYTES - _LOCATOR_BYTES :][:4]
    if size_bytes > _DIRECTORY_MAX_BYTES or locator == b"PK\6\7":
        _refuse(file, f"has a directory of {size_bytes} bytes or a second one")


def _checked_members(file: str, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    found = {info.filename: info for info in infos}
    if len(infos) > MEMBERS_MAX or len(found) != len(infos):
        _refuse(file, f"expected at most {MEMBERS_MAX} members, each once, found {len(infos)}")
    total = sum(info.file_size for info in infos)
    if total > PACKAGE_MAX_BYTES:
        _refuse(file, f"expected at most {PACKAGE_MAX_BYTES} bytes inflated, found {total}")
    for info in infos:
        if info.compress_type != zipfile.ZIP_DEFLATED or info.flag_bits & ~_UTF8_NAME:
            _refuse(file, "is not simply deflated", info.filename)
        # nothing here follows a link, but who unpacks it by hand does
        if stat.S_IFMT(info.external_attr >> 16) not in _PLAIN:
            _refuse(file, "is not a plain file", info.filename)
    return found


def _read_manifest(
    file: str, archive: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo]
) -> Manifest:
    info = infos.get(MANIFEST)
    if info is None or info.file_size > MANIFEST_MAX_BYTES or next(iter(infos)) != MANIFEST:
        _refuse(
            file, f"expected a {MANIFEST} of at most {MANIFEST_MAX_BYTES} bytes as first member"
        )
    text = archive.read(info)
    try:
        given = msgspec.json.decode(text)
        version = given.get("format") if isinstance(given, dict) else None
        if version != FORMAT or type(version) is not int:
            raise PackageError(
                f"{file}: {MANIFEST}: expected format {FORMAT}, found {version!r}: install the "
                "version of walle-stream that made it, or build it again with this one",
                file,
                MANIFEST,
            )
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if isinstance(error, PackageError):
            raise
        _refuse(file, f"is not a manifest: {error}", MANIFEST)


def _wanted(file: str, manifest: Manifest) -> dict[str, Part]:
    """Return the members that the manifest names."""
    wanted: dict[str, Part] = {}
    if not manifest.interpreters:
        _refuse(file, "expected code for an interpreter, found none", MANIFEST)
    for tag, interpreter in manifest.interpreters.items():
        names = {f"code/{tag}/modules.bin", f"code/{tag}/script.bin"}
        _compare(file, names, interpreter.members.keys())
        wanted |= interpreter.members
    for name, part in manifest.resources.items():
        if not RESOURCE_NAME.fullmatch(name) or len(name) > RESOURCE_NAME_MAX:
            _refuse(file, f"a resource cannot be named {name[:RESOURCE_NAME_MAX]!r}", MANIFEST)
        wanted[f"resources/{name}"] = part
    return wanted


def _compare(file: str, wanted: Any, found: Any) -> None:
    for name in sorted(wanted - found):
        _refuse(file, "is missing", name)
    for name in sorted(found - wanted):
        _refuse(file, "is not one of its members", name)


def _part(file: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, wanted: Part) -> bytes:
    name = info.filename
    if info.file_size != wanted.size:
        _refuse(file, f"expected {wanted.size} bytes, found {info.file_size}", name)
    try:
        # zipfile inflates no more than the size that was just compared
        data = archive.read(info)
    except _BROKEN as error:
        _refuse(file, f"cannot be inflated: {error}", name)
    digest = hashlib.sha256(data).hexdigest()
    if len(data) != wanted.size or digest != wanted.sha256:
        _refuse(file, f"expected SHA-256 {wanted.sha256[:12]}..., found {digest[:12]}...", name)
    return data
