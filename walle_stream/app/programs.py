"""Programs from definitions: scripts and resources are read here."""

from pathlib import Path

from walle_stream.errors import ScriptError
from walle_stream.spec.models import Task
from walle_stream.vm.package.reader import PACKAGE_MAX_BYTES
from walle_stream.vm.program import RunLimits, TaskProgram


def load_program(task: Task) -> TaskProgram:
    """Read a task's script and resources; nothing is compiled.

    Args:
        task: Its definition.

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
    return TaskProgram(
        name=name,
        version=spec.version,
        source=source,
        file=str(spec.script),
        config=dict(spec.config),
        limits=RunLimits(**spec.limits.model_dump()),
        isolation=spec.isolation,
        state_version=spec.state_version,
        resources={each: _resource(name, each, path) for each, path in spec.resources.items()},
    )


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
