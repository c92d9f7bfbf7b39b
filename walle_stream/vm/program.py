"""A task's program: its script, checked and compiled on the host.

The host parses and compiles once, a VM gets bytecode. ``compile_program`` is
what ``walle validate`` and the pool call; everything that can be wrong with a
script without running it is found here, with file and line.
"""

import marshal
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any

import msgspec

from walle_stream.errors import ScriptError
from walle_stream.vm import gate
from walle_stream.vm.asked_services import AskedService
from walle_stream.vm.limits import Confinement, Isolation, RunLimits


class TaskProgram(msgspec.Struct, frozen=True):
    """What a task runs."""

    name: str
    version: str
    source: str
    file: str
    """The script's file name as the user gave it, for messages."""
    config: Mapping[str, Any] = {}
    """What the script finds in ``ctx.config``; JSON values."""
    limits: RunLimits = RunLimits()
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
    takes_messages: bool = False
    """Whether the script has an ``on_message``; else no message wakes it."""
    confinement: Confinement = Confinement()
    asks: tuple[AskedService, ...] = ()
    """Services that the script calls by a name that stands there."""

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
    packed = pack_program(
        program, script.code, script.imports, shares_globals=script.shares_globals
    )
    return msgspec.structs.replace(packed, takes_messages=script.takes_messages, asks=script.asks)


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
