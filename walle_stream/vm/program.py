"""A task's program: its script, checked and compiled on the host.

The host parses and compiles once, a VM gets bytecode. ``compile_program`` is
what ``walle validate`` and the pool call; everything that can be wrong with a
script without running it is found here, with file and line.
"""

import marshal
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Annotated, Any, Final, Literal

import msgspec

from walle_stream.errors import ScriptError
from walle_stream.vm import gate

_MIB: Final = 2**20

type Isolation = Literal["shared", "device", "process"]
"""``shared``: any device's runs in the task's VMs; ``device``: a VM of its own
for every device; ``process``: VMs in processes of their own."""


class RunLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Bounds of one run of a task; beyond them the run fails, the task goes on."""

    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)] = _MIB
    """Features and encodings together."""
    emits: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Features."""
    log_lines: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 100
    """More are dropped and counted; the run does not fail."""
    wall_time_ms: Annotated[int, msgspec.Meta(ge=10, le=3_600_000)] = 5_000
    """The run is stopped between this and a quarter more of it."""
    strikes: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    """Runs stopped on one device before the task is quarantined there."""
    steps: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    """Turns of loops and calls of the script's functions; 0 for any number.
    Where it is set, every step costs about 0.1 us more."""
    state_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)] = _MIB
    """Keys and values of one device's state of the task."""


class Confinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the processes of a task with ``isolation: process`` are confined."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=64 * _MIB, le=2**40)] = 256 * _MIB
    """Of one process, interpreter included."""
    cpu_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 0
    """CPU time of one run; 0 for any."""
    required: tuple[str, ...] = ()
    """Measures without which no script runs, ascending."""


class TaskProgram(msgspec.Struct, frozen=True):
    """What a task runs."""

    name: str
    """The task's name."""
    version: str
    """The task's version."""
    source: str
    """Text of the script."""
    file: str
    """The script's file name as the user gave it, for messages."""
    config: Mapping[str, Any] = {}
    """What the script finds in ``ctx.config``; JSON values."""
    limits: RunLimits = RunLimits()
    """Bounds of one run."""
    isolation: Isolation = "shared"
    """Which devices may share a VM."""
    state_version: int = 1
    """Layout of the states: those of an older one go through ``migrate``."""
    resources: Mapping[str, bytes] = {}
    """Files of the task by name."""


class CompiledProgram(msgspec.Struct, frozen=True):
    """A program that a VM can be bound to."""

    task: str
    file: str
    packed: bytes
    """Marshalled (task, file, code, config, imported modules, whether its
    globals can be shared between runs, limits, state version, resources)."""
    limits: RunLimits = RunLimits()
    """Bounds of one run, which the host holds its output to."""
    isolation: Isolation = "shared"
    """Which devices may share a VM."""
    shares_globals: bool = False
    """Whether all runs of a VM have the same globals: none can leave anything there."""
    confinement: Confinement = Confinement()
    """Of its processes."""

    @property
    def file_name(self) -> str:
        """What the script itself is told."""
        return _file_name(self.file)


def _file_name(file: str) -> str:
    # where a script lies must be seen in no result; our own code's files begin with "<"
    return PurePath(file).name.lstrip("<") or "script"


def compile_program(program: TaskProgram) -> CompiledProgram:
    """Check a program and compile its script.

    Raises:
        ScriptError: Not Python; no ``run(ctx, page)``; an import, a builtin or
            a name that a script may not use; or a config that is not plain.
    """
    try:
        script = gate.compile_script(
            program.source,
            program.file,
            _file_name(program.file),
            needs_migrate=program.state_version > 1,
        )
    except gate.ScriptProblem as problem:
        refusal = script_error(program, problem.line, problem.text, problem.column)
        raise refusal from problem
    try:
        marshal.dumps(dict(program.config), 2)
    except ValueError as error:
        refusal = script_error(program, 0, f"its config is not plain JSON ({error})")
        raise refusal from error
    return pack_program(program, script.code, script.imports, shares_globals=script.shares_globals)


def script_error(
    program: TaskProgram | CompiledProgram, line: int, text: str, column: int = 0
) -> ScriptError:
    """Make the error for a place in a script; line and column from 1, 0 when unknown."""
    name = program.name if isinstance(program, TaskProgram) else program.task
    place = f"{program.file}:{line}" if line else program.file
    place += f":{column}" if line and column else ""
    return ScriptError(f"{place}: task {name!r}: {text}", name, program.file, line)


def pack_program(
    program: TaskProgram,
    code: CodeType,
    imports: Sequence[str],
    *,
    shares_globals: bool,
) -> CompiledProgram:
    """Put together what a VM is bound to: guarded code, and of the program all but its source."""
    limits = program.limits
    packed = marshal.dumps(
        (
            program.name,
            _file_name(program.file),
            code,
            marshal.dumps(dict(program.config), 2),
            list(imports),
            shares_globals,
            msgspec.structs.astuple(limits),
            program.state_version,
            dict(program.resources),
        )
    )
    return CompiledProgram(
        program.name, program.file, packed, limits, program.isolation, shares_globals
    )
