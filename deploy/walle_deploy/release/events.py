"""Events of a release; ``machine.advance`` returns their effects."""

from math import inf
from typing import Literal

import msgspec


class _Event(msgspec.Struct, frozen=True, tag=True):
    """Base of the events; times are epoch milliseconds."""

    at_ms: int


class Tick(_Event, frozen=True):
    """Time passed, and the gates looked at the devices' reports, if any."""

    judgement: Literal["go", "wait", "stop"] = "wait"
    devices: int = 0
    """Devices of this step that reported runs of the new version."""
    why: str = ""
    exposure: float = inf
    is_behind: bool = False
    """Whether the clock has been behind the step's beginning for a while."""


class Simulated(_Event, frozen=True):
    """The simulation ended."""

    passed: bool
    why: str


class Paused(_Event, frozen=True):
    """An operator stops the progress; devices keep what they have."""

    why: str = ""


class Resumed(_Event, frozen=True):
    """An operator ends the pause."""

    why: str = ""


class Advanced(_Event, frozen=True):
    """An operator begins the next step, whatever the current one waits for."""

    judgement: Literal["go", "wait", "stop"] = "wait"
    """The gates' last result; ``stop`` stops the release instead."""
    why: str = ""


class Approved(_Event, frozen=True):
    """A person other than the author lets the release begin."""

    by: str
    why: str = ""


class RolledBack(_Event, frozen=True):
    """An operator or the controller takes the version back from every device."""

    why: str = ""


class Superseded(_Event, frozen=True):
    """Another release of the task takes its place."""

    why: str = ""
