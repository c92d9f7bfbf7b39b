"""What can happen to a release; ``machine.advance`` says what comes of it."""

from math import inf
from typing import Literal

import msgspec


class _Event(msgspec.Struct, frozen=True, tag=True):
    """Base of what can happen; times are epoch milliseconds."""

    at_ms: int


class Tick(_Event, frozen=True):
    """Time went by, and the gates looked, where there is something to look at."""

    judgement: Literal["go", "wait", "stop"] = "wait"
    devices: int = 0
    """Of this step that reported runs of the new version."""
    why: str = ""
    exposure: float = inf
    is_behind: bool = False
    """Whether the clock is behind the begin of the step, and has been so for a while."""


class Simulated(_Event, frozen=True):
    """The simulation ended."""

    passed: bool
    why: str


class Paused(_Event, frozen=True):
    """Somebody stops the progress; devices keep what they have."""

    why: str = ""


class Resumed(_Event, frozen=True):
    """Somebody lets it go on."""

    why: str = ""


class Advanced(_Event, frozen=True):
    """Somebody begins the next step, whatever the one at hand waits for."""

    judgement: Literal["go", "wait", "stop"] = "wait"
    """What the gates said last: what is to be stopped is stopped."""
    why: str = ""


class Approved(_Event, frozen=True):
    """Somebody else than who created it lets it begin."""

    by: str
    why: str = ""


class RolledBack(_Event, frozen=True):
    """Somebody takes the version back from every device."""

    why: str = ""


class Superseded(_Event, frozen=True):
    """Another release of the task takes its place."""

    why: str = ""
