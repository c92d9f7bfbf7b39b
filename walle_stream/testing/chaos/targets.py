"""What can be killed: the seam between the campaign and a way to run pipelines.

A target starts a pipeline, names its processes by role, waits for the
pipeline's end and gives the bytes that must not differ. ``LocalTarget`` is
``walle run``, ``RayTarget`` the same over Ray, ``KafkaTarget`` several over a
broker; another runtime joins with a class of its own, named in ``TARGETS`` or by a dotted path.
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
"""Targets by the name that a plan gives them."""


class Role(msgspec.Struct, frozen=True):
    """A kind of process of a pipeline."""

    name: str
    """E.g. ``run``, ``vm``, ``host``, ``driver``."""
    ends_run: bool
    """Whether its death is the run's end; any other the run has to survive."""
    weight: float = 1.0
    """How often it is chosen, against the others."""
    points: tuple[str, ...] = ()
    """Crash points at which it can be armed to die (``walle_stream.faults``)."""
    kills_max: int | None = None
    """Kills that one run is to survive, before others are chosen; None for any number."""
    is_kill: bool = True
    """Whether ``kill`` kills somebody; any other fault is counted beside the kills."""


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended."""

    kind: Literal["done", "killed", "gave up", "failed"]
    """``done``: by itself, at the source's end. ``killed``: of SIGKILL. ``gave up``: with an
    error that is allowed after kills of its parts; the next run goes on. ``failed``: anything
    else, which is a finding."""
    text: str = ""
    """What it said, for a person."""
    parts_ended: Mapping[str, int] = {}
    """Parts that ended by themselves in a way that is allowed, and were started again."""


class Running(Protocol):
    """A pipeline that was started. One thread."""

    def await_life(self, timeout_s: float) -> None:
        """Block until the run has done something with data, has ended, or time is out.

        Called before every kill at a random moment, after earlier ones too.
        """

    def await_end(self, timeout_s: float) -> RunEnd | None:
        """Block until the run has ended and return how; None when time is out."""

    def await_crash(self, timeout_s: float) -> bool:
        """Block until the armed process has died at its point, the run has ended, or time is out.

        Returns:
            Whether it has died there.
        """

    def kill(self, role: str, pick: int) -> bool:
        """Send SIGKILL to one process of a role; returns at once.

        Args:
            role: One of the target's.
            pick: Any number: chooses among the processes of the role.

        Returns:
            Whether there was one and it was alive.
        """

    def phase(self) -> str:
        """Return the crash point passed last; empty before the first.

        After ``kill``: by the process that was killed, where the target can tell.
        """

    def close(self) -> None:
        """Kill what is left of it and reap it; may be called twice."""


class Target(Protocol):
    """A way to run a pipeline. Made with (plan, folder of the campaign)."""

    @property
    def roles(self) -> Sequence[Role]:
        """Whom to kill; at least one of them ends the run."""

    def clear(self) -> None:
        """End what runs in the campaign's folder, and what the target itself keeps running.

        Called before the first start, as a campaign is resumed after its own
        ``kill -9``, and after the last.
        """

    def start(self, data_dir: Path, role: str = "", crash: str = "") -> Running:
        """Start the pipeline on a data directory and return at once.

        Args:
            data_dir: New, or that of the life so far.
            role: Whom to arm; empty for nobody.
            crash: ``POINT:VISIT`` at which a process of that role kills itself.
        """

    def standing(self, data_dir: Path) -> RunState | None:
        """Return how far the runs came; None before there is anything. The run may be alive."""

    def outcome(self, data_dir: Path) -> Mapping[str, Sequence[bytes]]:
        """Return what must not differ, by name, in lines; the run has ended."""


def find_target(name: str) -> Callable[[ChaosPlan, Path], Target]:
    """Return what makes a target.

    Args:
        name: A key of ``TARGETS``, or ``package.module:NAME`` of something callable.

    Raises:
        CampaignError: There is none of that name, or it cannot be imported.
    """
    path = TARGETS.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise CampaignError(
            f"there is no target {name!r}: known are {', '.join(TARGETS)}; your own is named "
            "package.module:NAME"
        )
    try:
        make: Callable[[ChaosPlan, Path], Target] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise CampaignError(
            f"target {name!r} cannot be imported ({error}): correct the name, or install what it "
            "needs"
        ) from error
    return make
