"""A task's program: its script, checked and compiled on the host.

The host parses and compiles once, and a VM gets bytecode. ``walle validate`` and
the pool call ``compile_program``. It finds every problem of a script that does not
need a run, with file and line.
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
    """A task's script with its configuration and limits."""

    name: str
    version: str
    source: str
    file: str
    """The script's file name as the user gave it, for messages."""
    config: Mapping[str, Any] = {}
    """Contents of ``ctx.config``: JSON values."""
    limits: RunLimits = RunLimits()
    isolation: Isolation = "shared"
    """Which devices may share a VM."""
    state_version: int = 1
    """Version of the state's layout; ``migrate`` converts states of an older version."""
    resources: Mapping[str, bytes] = {}
    """Files of the task by name."""


class CompiledProgram(msgspec.Struct, frozen=True):
    """A program to which a VM can be bound."""

    task: str
    file: str
    packed: bytes
    """Marshalled (task, file, code, config, imported modules, whether its
    globals can be shared between runs, limits, state version, resources)."""
    limits: RunLimits = RunLimits()
    """Bounds of one run, against which the host checks its output."""
    isolation: Isolation = "shared"
    """Which devices may share a VM."""
    shares_globals: bool = False
    """Whether all runs of a VM share globals, because no run can change them."""
    takes_messages: bool = False
    """Whether the script has an ``on_message``; without it no message wakes the task."""
    confinement: Confinement = Confinement()
    asks: tuple[AskedService, ...] = ()
    """Services that the script calls; the name is empty if the text does not have it."""

    @property
    def file_name(self) -> str:
        """File name without its folder, as the script sees it."""
        return _file_name(self.file)


def _file_name(file: str) -> str:
    # a script's folder must not appear in any result; files of our own code begin with "<"
    return PurePath(file).name.lstrip("<") or "script"


def compile_program(program: TaskProgram) -> CompiledProgram:
    """Check a program and compile its script.

    Raises:
        ScriptError: The script is not Python, has no ``run(ctx, page)``, or uses
            a forbidden import, builtin or name; or the config is not plain JSON.
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
    """Make the error for a place in a script; line and column count from 1, 0 if unknown."""
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
    """Pack guarded code and the program without its source, for binding a VM."""
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
