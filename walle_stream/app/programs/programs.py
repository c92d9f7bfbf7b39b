"""Programs from definitions: reading of scripts, resources and packages.

``assembly`` asks this module for tasks that are ready to run. The rest of the program does not know
whether a task came as source or as a package.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from walle_stream.actors.turns.attempts import FailurePolicy
from walle_stream.errors import ScriptError
from walle_stream.ports import InstalledTask
from walle_stream.spec.models import Task
from walle_stream.vm.limits import Confinement, RunLimits
from walle_stream.vm.package.reader import (
    PACKAGE_MAX_BYTES,
    PackagedTask,
    program_of,
    read_package,
)
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program


class ReadyTask(msgspec.Struct, frozen=True):
    """A checked task that can run."""

    name: str
    version: str
    """Version of the task, stored with every feature."""
    triggers: tuple[tuple[str, ...], ...]
    fields: tuple[str, ...] | None
    """Contents of events that the script reads; None: all."""
    pages: tuple[str, ...] | None
    """Pages whose events wake the task; None: any page."""
    program: CompiledProgram
    on_error: FailurePolicy = FailurePolicy()
    state_version: int = 1
    """Version of the layout of its states."""
    package: str = ""
    """SHA-256 of the task's package; empty for a script."""

    def installed(self, program: str = "", package: str = "") -> InstalledTask:
        """Return the task as devices have it; VMs know it by ``program``, its name by default.

        ``package`` is the package's name in the data directory, empty for a task of a definition.
        """
        return InstalledTask(
            self.version,
            self.triggers,
            program or self.name,
            self.state_version,
            self.fields,
            self.pages,
            (self.on_error.attempts, self.on_error.backoff_ms, self.on_error.leaves_letter),
            package,
            takes_messages=self.program.takes_messages,
        )


def compile_task(task: Task) -> ReadyTask:
    """Read, check and compile a task's script and resources.

    Raises:
        ScriptError: A file cannot be read, or the script is wrong.
    """
    definition, program = packaged(task), compile_program(load_program(task))
    return _ready(definition, program)


def packaged(task: Task) -> PackagedTask:
    """Return a task's definition as its package has it."""
    spec, retry = task.spec, task.spec.on_error.retry
    isolation = spec.isolation
    return PackagedTask(
        name=task.metadata.name,
        version=spec.version,
        state_version=spec.state_version,
        # without the folder, which would reveal the builder's paths
        file=spec.script.name,
        triggers=tuple(tuple(trigger.sequence) for trigger in spec.triggers),
        fields=spec.fields,
        config=dict(spec.config),
        limits=RunLimits(**spec.limits.model_dump()),
        pages=spec.pages,
        isolation=isolation.policy,
        confinement=Confinement(
            isolation.memory_bytes, isolation.cpu_ms or 0, tuple(sorted(isolation.require))
        ),
        on_error=(retry.attempts, retry.backoff_ms, spec.on_error.dead_letter),
    )


def unpack_task(file: Path | bytes, beside: Mapping[str, bytes] | None = None) -> ReadyTask:
    """Read a package, check every byte of it and compile its script.

    Resources of ``beside`` take precedence over the package's.

    Raises:
        PackageError: The file is no package, or is altered or incomplete, or its script may not run
            here.
    """
    package = read_package(file)
    return _ready(package.manifest.task, package.program(beside), package.sha256)


def _ready(task: PackagedTask, program: CompiledProgram, package: str = "") -> ReadyTask:
    return ReadyTask(
        task.name,
        task.version,
        task.triggers,
        task.fields,
        task.pages,
        msgspec.structs.replace(program, confinement=task.confinement),
        FailurePolicy(*task.on_error),
        task.state_version,
        package,
    )


def load_program(task: Task) -> TaskProgram:
    """Read a task's script and resources without compiling them.

    Raises:
        ScriptError: A file cannot be read.
    """
    spec, name = task.spec, task.metadata.name
    try:
        source = spec.script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(
            f"task {name!r}: the script {spec.script} cannot be read: {error}",
            name,
            str(spec.script),
        ) from error
    resources = {name_: _resource(name, name_, path) for name_, path in spec.resources.items()}
    program = program_of(packaged(task), source, resources)
    return msgspec.structs.replace(program, file=str(spec.script))


def _resource(task: str, name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(PACKAGE_MAX_BYTES + 1)
    except OSError as error:
        raise ScriptError(
            f"task {task!r}: the resource {name!r} cannot be read: {path}: "
            f"{error.strerror or error}: correct spec.resources",
            task,
            str(path),
        ) from error
    if len(data) > PACKAGE_MAX_BYTES:
        raise ScriptError(
            f"task {task!r}: the resource {name!r} ({path}) has more than {PACKAGE_MAX_BYTES} "
            "bytes: split it, or leave it out of spec.resources",
            task,
            str(path),
        )
    return data
