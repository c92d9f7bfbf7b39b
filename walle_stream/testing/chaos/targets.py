"""Targets of kills: the interface between a campaign and a way to run pipelines.

A target starts a pipeline, names its processes by role, waits for the pipeline's end and returns
the bytes that must not differ. ``LocalTarget`` is ``walle run``, ``RayTarget`` the same over Ray,
``KafkaTarget`` several over a broker. Another runtime adds a class of its own, named in ``TARGETS``
or by a dotted path.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from walle_stream.app.queries.query import RunState
from walle_stream.errors import CampaignError
from walle_stream.testing.chaos.plan import ChaosPlan

TARGETS: Final = {
    "local": "walle_stream.testing.chaos.local:LocalTarget",
    "isolated": "walle_stream.testing.chaos.local:IsolatedTarget",
    "ray": "walle_stream.testing.chaos.ray_target:RayTarget",
    "kafka": "walle_stream.testing.chaos.kafka:KafkaTarget",
    "kafka-machines": "walle_stream.testing.chaos.kafka:KafkaMachinesTarget",
}
"""Targets by their names in plans."""


class Role(msgspec.Struct, frozen=True):
    """A kind of process of a pipeline."""

    name: str
    """Name of the role, such as ``run``, ``vm``, ``host``, ``driver``."""
    ends_run: bool
    """Whether its death ends the run; the run must survive any other death."""
    weight: float = 1.0
    """Relative frequency of being chosen."""
    points: tuple[str, ...] = ()
    """Crash points at which it can be armed to die (``walle_stream.faults``)."""
    kills_max: int | None = None
    """Largest number of kills in one run; None for any number."""
    is_kill: bool = True
    """Whether ``kill`` ends a process; other faults are counted separately."""


class RunEnd(msgspec.Struct, frozen=True):
    """End of a run."""

    kind: Literal["done", "killed", "gave up", "failed"]
    """``done``: by itself, at the source's end. ``killed``: by SIGKILL. ``gave up``: with an error
    that is allowed after kills of its parts; the next run continues. ``failed``: any other end,
    which is a finding."""
    text: str = ""
    """The end of its output, for a person."""
    parts_ended: Mapping[str, int] = {}
    """Number of parts that ended by themselves in an allowed way and were restarted, by name."""


class Running(Protocol):
    """A started pipeline. For one thread."""

    def await_life(self, timeout_s: float) -> None:
        """Block until the run has processed data, has ended, or the timeout.

        Called before every kill at a random moment, even after earlier kills.
        """

    def await_end(self, timeout_s: float) -> RunEnd | None:
        """Block until the run has ended and return its end; None on timeout."""

    def await_crash(self, timeout_s: float) -> bool:
        """Block until the armed process has died at its point, the run has ended, or the timeout.

        Returns:
            Whether the process died at its point.
        """

    def kill(self, role: str, pick: int) -> bool:
        """Send SIGKILL to one process of a role; returns at once.

        Args:
            role: A role of the target.
            pick: Any number; it selects one of the role's processes.

        Returns:
            Whether a living process was hit.
        """

    def phase(self) -> str:
        """Return the crash point passed last; empty before the first.

        After ``kill`` it is the point of the killed process, if the target knows it.
        """

    def close(self) -> None:
        """Kill and reap all remaining processes; may be called twice."""


class Target(Protocol):
    """A way to run a pipeline; its maker takes the plan and the campaign's folder."""

    @property
    def roles(self) -> Sequence[Role]:
        """Roles to kill; at least one of them ends the run."""

    def clear(self) -> None:
        """End all processes of the campaign's folder and of the target itself.

        Called before the first start, since a campaign may be resumed after its own ``kill -9``,
        and after the last run.
        """

    def start(self, data_dir: Path, role: str = "", crash: str = "") -> Running:
        """Start the pipeline on a data directory and return at once.

        Args:
            data_dir: A new data directory, or that of the current life.
            role: Role to arm; empty for none.
            crash: ``POINT:VISIT`` at which a process of that role kills itself.
        """

    def standing(self, data_dir: Path) -> RunState | None:
        """Return the progress of the runs; None before the first data. The run may be alive."""

    def outcome(self, data_dir: Path) -> Mapping[str, Sequence[bytes]]:
        """Return the lines that must not differ, by name; called after the run's end."""


def find_target(name: str) -> Callable[[ChaosPlan, Path], Target]:
    """Return the function or class that makes a target.

    Args:
        name: A key of ``TARGETS``, or ``package.module:NAME`` of a callable.

    Raises:
        CampaignError: The target is unknown or cannot be imported.
    """
    path = TARGETS.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise CampaignError(
            f"there is no target {name!r}: give one of {', '.join(TARGETS)}, or your own as "
            "package.module:NAME"
        )
    try:
        make: Callable[[ChaosPlan, Path], Target] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise CampaignError(
            f"target {name!r} cannot be imported ({error}): correct the name, or install its "
            "packages"
        ) from error
    return make
