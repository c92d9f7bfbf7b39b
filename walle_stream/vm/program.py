"""A task's program: its script, checked and compiled on the host.

The host parses and compiles once, a VM gets bytecode. ``compile_program`` is
what ``walle validate`` and the pool call; everything that can be wrong with a
script without running it is found here, with file and line.
"""

import ast
import marshal
import warnings
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any, Literal

import msgspec

from walle_stream.errors import ScriptError
from walle_stream.vm import gate
from walle_stream.vm.confinement import Confinement
from walle_stream.vm.stateless import is_stateless

type Isolation = Literal["shared", "device", "process"]
"""``shared``: any device's runs in the task's VMs; ``device``: a VM of its own
for every device; ``process``: VMs in processes of their own."""


class RunLimits(msgspec.Struct, frozen=True):
    """Bounds of one run of a task; beyond them the run fails, the task goes on."""

    output_bytes: int = 1024 * 1024
    """Features and encodings together."""
    emits: int = 10_000
    """Features."""
    log_lines: int = 100
    """More are dropped and counted; the run does not fail."""
    wall_time_ms: int = 5_000
    """The run is stopped between this and a quarter more of it."""
    strikes: int = 3
    """Runs stopped on one device before the task is quarantined there."""
    steps: int = 0
    """Turns of loops and calls of the script's functions; 0 for any number.
    Where it is set, every step costs about 0.1 us more."""
    state_bytes: int = 1024 * 1024
    """Keys and values of one device's state of the task."""


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

    @property
    def file_name(self) -> str:
        """What the script itself is told: where it lies must be seen in no result."""
        # our own code is told by its file's name: it begins with "<"
        return PurePath(self.file).name.lstrip("<") or "script"


class CompiledProgram(msgspec.Struct, frozen=True):
    """A program that a VM can be bound to."""

    task: str
    file: str
    packed: bytes
    """Marshalled (task, file, code, config, imported modules, whether its
    globals can be shared between runs, limits, state version, resources)."""
    wall_time_ms: int
    """Longest run."""
    strikes: int
    """Stopped runs on one device before the task is quarantined there."""
    counts_steps: bool = False
    """Whether runs have a limit of steps."""
    isolation: Isolation = "shared"
    """Which devices may share a VM."""
    shares_globals: bool = False
    """Whether all runs of a VM have the same globals: none can leave anything there."""
    limits: RunLimits = RunLimits()
    """Bounds of one run, which the host holds its output to."""
    confinement: Confinement = Confinement()
    """Of its processes."""

    @property
    def file_name(self) -> str:
        """What the script itself is told: where it lies must be seen in no result."""
        # our own code is told by its file's name: it begins with "<"
        return PurePath(self.file).name.lstrip("<") or "script"


def compile_program(program: TaskProgram) -> CompiledProgram:
    """Check a program and compile its script.

    Raises:
        ScriptError: Not Python; no ``run(ctx, page)``; an import, a builtin or
            a name that a script may not use; or a config that is not plain.
    """
    return _compile(program, _parse(program))


def script_error(
    program: TaskProgram | CompiledProgram, line: int, text: str, column: int = 0
) -> ScriptError:
    """Make the error for a place in a script.

    Args:
        program: Whose script.
        line: From 1; 0 when unknown.
        text: What is wrong there and what to do.
        column: From 1; 0 when unknown.
    """
    name = program.name if isinstance(program, TaskProgram) else program.task
    place = f"{program.file}:{line}" if line else program.file
    place += f":{column}" if line and column else ""
    return ScriptError(f"{place}: task {name!r}: {text}", name, program.file, line)


def _parse(program: TaskProgram) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a script's style is its own
            return ast.parse(program.source, program.file)
    except SyntaxError as error:
        raise script_error(
            program, error.lineno or 0, f"is not valid Python: {error.msg}", error.offset or 0
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise script_error(program, 0, f"is not valid Python: {error}") from error


def _compile(program: TaskProgram, tree: ast.Module) -> CompiledProgram:
    findings = gate.check(tree, needs_migrate=program.state_version > 1)
    if findings:
        line, text = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise script_error(program, line, text + more)
    imports = sorted(gate.imported_modules(tree))
    shares_globals = is_stateless(tree)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree, name = gate.rewrite(tree), program.file_name
            code = compile(tree, name, "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        raise script_error(
            program, error.lineno or 0, f"is not valid Python: {error.msg}", error.offset or 0
        ) from error
    except (RecursionError, MemoryError) as error:
        raise script_error(program, 0, "is nested too deep to compile: split it up") from error
    try:
        config = dict(program.config)
        marshal.dumps(config, 2)
    except ValueError as error:
        raise script_error(program, 0, f"its config is not plain JSON ({error})") from error
    return pack_program(program, code, imports, shares_globals=shares_globals)


def pack_program(
    program: TaskProgram,
    code: CodeType,
    imports: Sequence[str],
    *,
    shares_globals: bool,
) -> CompiledProgram:
    """Put together what a VM is bound to.

    Args:
        program: The program; its source is not looked at.
        code: Its script's, guarded.
        imports: Allowed modules that the script imports.
        shares_globals: Whether nothing in its globals can differ between runs.
    """
    limits = program.limits
    packed = marshal.dumps(
        (
            program.name,
            program.file_name,
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
        program.name,
        program.file,
        packed,
        limits.wall_time_ms,
        limits.strikes,
        limits.steps > 0,
        program.isolation,
        shares_globals,
        limits,
    )
