"""Reader of task packages: one file with everything that a device needs to run a task.

``NAME-VERSION.walle`` is a zip whose comment is a seal. Its members have this order.
Each is deflated, dated 1980-01-01, and has the mode 0644 of a regular file::

    manifest.json               list of the other members, see ``Manifest``; UTF-8
    script.py                   the task's script, UTF-8
    resources/NAME              files of the task, unchanged

The NAMEs ascend. The file ends with the zip's end record (22 bytes) and its comment:
the 13 bytes ``walle-sha256:`` and 64 lower-case hexadecimal digits. The digits are the
SHA-256 of every byte before them. The same input gives the same bytes.

The device compiles the script with its own gate and guards, so it does not depend on
the builder's, and no part of a package is ever unmarshalled. The seal detects damage,
not malice: the deployment decides which senders a device accepts.

Reading is bounded, and checks every byte before anything is parsed.
"""

import hashlib
import io
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Never

import msgspec

from walle_stream.errors import PackageError, ScriptError
from walle_stream.vm.guest import GUEST_API_VERSION
from walle_stream.vm.limits import Confinement, Isolation, RunLimits
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program

FORMAT: Final = 2
"""Version of the layout above."""

MANIFEST: Final = "manifest.json"
SCRIPT: Final = "script.py"
SUFFIX: Final = ".walle"
SEAL: Final = b"walle-sha256:"
"""Start of the zip's comment; the 64 digits of the digest follow."""

RESOURCE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
"""Allowed names of resources: relative paths without a part that begins with a dot."""

RESOURCE_NAME_MAX: Final = 200
PACKAGE_MAX_BYTES: Final = 256 * 1024 * 1024
"""Largest package, and largest sum of its inflated members."""

MANIFEST_MAX_BYTES: Final = 4 * 1024 * 1024
SCRIPT_MAX_BYTES: Final = 1024 * 1024
"""Largest script; parsing takes about a hundred times its size in memory."""

MEMBERS_MAX: Final = 1_100
"""Largest number of members; a definition names at most 1,000 resources."""

CURRENT_TAG: Final = sys.implementation.cache_tag or sys.implementation.name
"""Tag of this interpreter."""

_SEAL_BYTES: Final = len(SEAL) + 64
_END_BYTES: Final = 22 + _SEAL_BYTES
_LOCATOR_BYTES: Final = 20
_DIRECTORY_MAX_BYTES: Final = MEMBERS_MAX * 512
_UTF8_NAME: Final = 0x800
_PLAIN: Final = {0, stat.S_IFREG, stat.S_IFDIR}  # a manifest cannot name a folder anyway
# all errors that zipfile raises for malicious files
_BROKEN: Final = (
    *(zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, LookupError),
    *(RuntimeError, ArithmeticError, MemoryError),
)
_DAMAGED: Final = "it was altered or cut: get it again, or build it with walle task build"


_Count = Annotated[int, msgspec.Meta(ge=0)]
_Attempts = Annotated[int, msgspec.Meta(ge=1, le=10)]
_BackoffMs = Annotated[int, msgspec.Meta(ge=0, le=2_000)]
# as in a definition: a trie has no place for an empty trigger
_Trigger = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...],
    msgspec.Meta(min_length=1, max_length=64),
]


class PackagedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The complete definition of the task, so that a host needs no YAML beside the package."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z", max_length=63)]
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    state_version: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    file: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f/\\]+\Z", max_length=255)]
    """The script's name without folders, for messages."""
    triggers: Annotated[tuple[_Trigger, ...], msgspec.Meta(min_length=1)]
    fields: tuple[str, ...] | None
    """Contents of events that the script reads; all when null."""
    config: dict[str, Any]
    limits: RunLimits
    pages: tuple[str, ...] | None = None
    """Pages whose events wake the task; all pages when null."""
    isolation: Isolation = "shared"
    confinement: Confinement = Confinement()
    entry: Literal["run"] = "run"
    """Name of the function that is called for each page sequence."""
    on_error: tuple[_Attempts, _BackoffMs, bool] = (1, 100, True)
    """Attempts, pause, and whether a failed run leaves a dead letter."""

    @property
    def file_name(self) -> str:
        """``NAME-VERSION.walle``; characters unfit for file names become ``_``."""
        version = re.sub(r"[^A-Za-z0-9._+-]", "_", self.version)
        return f"{self.name}-{version}{SUFFIX}"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``manifest.json``."""

    format: int
    guest_api: Annotated[int, msgspec.Meta(ge=1)]
    """``guest.GUEST_API_VERSION`` of the script."""
    task: PackagedTask
    interpreters: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Interpreters that checked the script, such as ``cpython-314``; ascending."""
    resources: dict[str, _Count]
    """Bytes of each resource, by NAME."""


class TaskPackage(msgspec.Struct, frozen=True):
    """A package that was read and checked."""

    file: str
    """Name of the file, for messages."""
    size_bytes: int
    """Size of the whole file."""
    manifest: Manifest
    manifest_bytes: int
    parts: Mapping[str, bytes]
    """The other members by their full names, inflated."""
    packed_bytes: Mapping[str, int]
    """Size of each member in the file, deflated."""
    sha256: str
    """SHA-256 of the whole file, in hexadecimal digits."""

    def resource(self, name: str) -> bytes:
        """Return a resource by its name in ``spec.resources``.

        Raises:
            PackageError: The package has no resource of that name.
        """
        data = self.parts.get(f"resources/{name}")
        if data is None:
            known = ", ".join(self.manifest.resources) or "none"
            raise PackageError(
                f"{self.file}: there is no resource {name!r} in it, found {known}: "
                "name it in spec.resources",
                self.file,
                name,
            )
        return data

    def program(self, beside: Mapping[str, bytes] | None = None) -> CompiledProgram:
        """Check and compile the script; a resource of ``beside`` replaces a packed one.

        Raises:
            PackageError: The script may not run here.
        """
        manifest = self.manifest
        if manifest.guest_api > GUEST_API_VERSION:
            raise PackageError(
                f"{self.file}: expected guest API {GUEST_API_VERSION} or older, found "
                f"{manifest.guest_api}: install a newer walle-stream here",
                self.file,
            )
        resources = {name: self.resource(name) for name in manifest.resources}
        source = self.parts[SCRIPT].decode("utf-8")
        program = program_of(manifest.task, source, {**resources, **(beside or {})})
        try:
            return compile_program(program)
        except ScriptError as error:
            raise PackageError(f"{self.file}: {error.message}", self.file, SCRIPT) from error


def program_of(task: PackagedTask, source: str, resources: Mapping[str, bytes]) -> TaskProgram:
    """Return the program of a packaged task, for compiling; resources by name."""
    return TaskProgram(
        *(task.name, task.version, source, task.file, task.config, task.limits),
        *(task.isolation, task.state_version, resources),
    )


def read_package(data_or_path: bytes | Path) -> TaskPackage:
    """Read a package and check every byte of it; compiles nothing.

    Raises:
        PackageError: The file is not a package, or it is altered, truncated, too
            large, or of a format that this version does not know.
    """
    file = "package" if isinstance(data_or_path, bytes) else str(data_or_path)
    data = data_or_path if isinstance(data_or_path, bytes) else _read_file(data_or_path, file)
    _check_end(file, data)
    seal, digest = data[-64:], hashlib.sha256(data[:-64]).hexdigest().encode()
    if seal != digest:
        _refuse(file, f"expected the seal {digest[:12]!r}..., found {seal[:12]!r}...")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = _checked_members(file, archive)
            manifest = _read_manifest(file, archive, infos)
            names = _checked_names(file, manifest, infos)
            parts = {name: _part(file, archive, infos[name]) for name in names}
    except _BROKEN as error:
        if isinstance(error, PackageError):
            raise
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PackageError(f"{file}: is a broken zip ({text}): {_DAMAGED}", file) from error
    try:
        parts[SCRIPT].decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(file, f"is not UTF-8: {error}", SCRIPT)
    packed = {name: info.compress_size for name, info in infos.items()}
    sha256 = hashlib.sha256(data).hexdigest()
    return TaskPackage(file, len(data), manifest, infos[MANIFEST].file_size, parts, packed, sha256)


def _refuse(file: str, text: str, member: str = "") -> Never:
    place = f"{file}: {member}" if member else file
    raise PackageError(f"{place}: {text}; {_DAMAGED}", file, member)


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
    # checks the end record before zipfile trusts it
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
    by_name = {info.filename: info for info in infos}
    if len(infos) > MEMBERS_MAX or len(by_name) != len(infos):
        _refuse(file, f"expected at most {MEMBERS_MAX} members, each once, found {len(infos)}")
    total = sum(info.file_size for info in infos)
    if total > PACKAGE_MAX_BYTES:
        _refuse(file, f"expected at most {PACKAGE_MAX_BYTES} bytes inflated, found {total}")
    for info in infos:
        if info.compress_type != zipfile.ZIP_DEFLATED or info.flag_bits & ~_UTF8_NAME:
            _refuse(file, "is not simply deflated", info.filename)
        # this module follows no link, but a person who unpacks the zip would
        if stat.S_IFMT(info.external_attr >> 16) not in _PLAIN:
            _refuse(file, "is not a plain file", info.filename)
    return by_name


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
        fields = msgspec.json.decode(text)
        version = fields.get("format") if isinstance(fields, dict) else None
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


def _checked_names(
    file: str, manifest: Manifest, infos: Mapping[str, zipfile.ZipInfo]
) -> list[str]:
    """Return the members that the manifest names; refuse any other member."""
    for name in manifest.resources:
        if not RESOURCE_NAME.fullmatch(name) or len(name) > RESOURCE_NAME_MAX:
            _refuse(file, f"a resource cannot be named {name[:RESOURCE_NAME_MAX]!r}", MANIFEST)
    sizes = {f"resources/{name}": size for name, size in manifest.resources.items()}
    wanted = [SCRIPT, *sizes]
    for name in sorted(infos.keys() - {MANIFEST, *wanted}):
        _refuse(file, "is not one of its members", name)
    for name in wanted:
        if name not in infos:
            _refuse(file, "is missing", name)
        size = infos[name].file_size
        if name == SCRIPT and size > SCRIPT_MAX_BYTES:
            _refuse(file, f"expected at most {SCRIPT_MAX_BYTES} bytes, found {size}", name)
        if sizes.get(name, size) != size:
            _refuse(file, f"expected {sizes[name]} bytes, found {size}", name)
    return wanted


def _part(file: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    # inflates no more than the directory declares, and its sum was checked
    try:
        data = archive.read(info)
    except _BROKEN as error:
        _refuse(file, f"cannot be inflated: {error}", info.filename)
    if len(data) != info.file_size:
        _refuse(file, f"expected {info.file_size} bytes, found {len(data)}", info.filename)
    return data
