"""Runs a task's script in this process: what the baseline makes of a visit that ended.

The script is the pipeline's own, so that the baseline's features are by construction the
device side's, the same function of the same rows. It is the operator's own code and runs
without the limits of a virtual machine. It has the usual interface of scripts (``ctx.state``,
``ctx.emit``, ``ctx.config``, and pages without lists of event objects).
"""

import json
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from ipv_parts.visits import OpenVisit, Row
from walle_stream.errors import ScriptError
from walle_stream.spec.models import Task


class CloudPage:
    """A visit as scripts see it."""

    def __init__(self, visit: OpenVisit) -> None:
        """Look at a visit that ended."""
        self._visit = visit
        self.is_complete = True

    @property
    def page_id(self) -> str:
        """The page of the app."""
        return self._visit.page_id

    @property
    def instance(self) -> str:
        """Which visit of the page."""
        return self._visit.instance

    @property
    def cause(self) -> str:
        """Why the visit ended."""
        return self._visit.cause

    @property
    def rows(self) -> list[Row]:
        """The page's events in order, as plain tuples."""
        return self._visit.rows

    @property
    def enter_time_ms(self) -> int:
        """Event time of the enter."""
        return self._visit.rows[0][2]

    @property
    def exit_time_ms(self) -> int:
        """Event time of the end."""
        return self._visit.rows[-1][2]

    @property
    def dwell_ms(self) -> int:
        """From enter to end, ≥ 0."""
        return self.exit_time_ms - self.enter_time_ms


class CloudState:
    """A device's state of a task, over a dict of JSON values."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Look at a device's values, which are changed in place."""
        self._values = values

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default where there is none."""
        return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Store a JSON value."""
        self._values[key] = value

    def delete(self, key: str) -> None:
        """Forget a value."""
        self._values.pop(key, None)


class CloudContext:
    """The ``ctx`` of a run."""

    def __init__(self, device_id: str, state: dict[str, Any], config: dict[str, Any]) -> None:
        """Begin a run; the device's state is changed in place."""
        self.device_id = device_id
        self.config = config
        self.state = CloudState(state)
        self.emitted: list[tuple[bytes, bytes]] = []
        """Feature as JSON, and encoding."""

    def emit(self, feature: dict[str, Any], encoding: bytes | None = None) -> None:
        """Make a feature of JSON values, with an encoding beside it."""
        body = json.dumps(feature, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self.emitted.append((body.encode(), encoding or b""))


class CloudTask:
    """A task's script, loaded."""

    def __init__(self, task: Task) -> None:
        """Load the script; runs its top level.

        Raises:
            ScriptError: It cannot be loaded, or has no ``run``.
        """
        self.name = task.metadata.name
        self.version = task.spec.version
        self._config = task.spec.config
        self._run = _load(task)

    def run(self, device_id: str, visit: OpenVisit, state: dict[str, Any]) -> list[Any]:
        """Run the script on a visit that ended; changes the device's state of this task in place.

        Returns (feature as JSON, encoding) of each that it emitted.
        """
        context = CloudContext(device_id, state, self._config)
        self._run(context, CloudPage(visit))
        return context.emitted


def _load(task: Task) -> Callable[[Any, Any], object]:
    path, name = task.spec.script, task.metadata.name
    try:
        # a loader of its own: a script may have any file name
        loader = SourceFileLoader(f"walle_cloud_task_{name}", str(path))
        module = ModuleType(loader.name)
        loader.exec_module(module)
        run: Callable[[Any, Any], object] = module.run
    except Exception as error:
        raise ScriptError(
            f"{path}: cannot be loaded by the cloud side: {error!r}", name, str(path)
        ) from error
    return run
