"""The steps of a release as they stand in its YAML: what they need, and when they may begin."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, StrictInt, model_validator

from walle_deploy.release.limits import Duration
from walle_stream.spec.paths import PathMarker
from walle_stream.spec.strict import Strict

LEAST_PERCENT: Final = 1e-6
"""One device of a hundred million; far below, 100 less a share is 100 and groups have no ratio."""
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")

type Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
"""Of the week."""

_EVERY_DAY: Final[tuple[Day, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_Text = Annotated[str, Field(min_length=1, max_length=256)]
_Path = Annotated[Path, PathMarker()]


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"there is no time zone {name!r}: expected one like UTC or Europe/Oslo"
        ) from error
    return name


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError(f"expected a time like '09:00' in quotes, found {text!r}")
    return text


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"expected a time like 2026-11-23T09:00:00Z, found {text!r}") from error
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: end it with Z or an offset like +01:00")
    return text


class Hours(Strict):
    """When a step may begin, on a clock on the wall."""

    from_: Annotated[str, AfterValidator(_time)] = Field(alias="from")
    """Inclusive."""
    to: Annotated[str, AfterValidator(_time)]
    """Exclusive; before ``from`` it is the next day's."""
    days: Annotated[tuple[Day, ...], Field(min_length=1)] = _EVERY_DAY
    """On which ``from`` may be."""
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"

    @model_validator(mode="after")
    def _last(self) -> Self:
        if self.from_ == self.to:
            raise ValueError("hours: from and to are the same: leave hours out, or name two times")
        return self

    def contain(self, at_ms: int) -> bool:
        """Return whether a moment is within."""
        local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(self.time_zone))
        clock, day = f"{local:%H:%M}", local.weekday()
        if self.from_ <= self.to:
            is_within = self.from_ <= clock < self.to
        else:
            is_within = clock >= self.from_ or clock < self.to
            day -= clock < self.to
        return is_within and _EVERY_DAY[day % 7] in self.days


class Step(Strict):
    """What has to be so before the next step begins."""

    min_duration: Duration = 600_000
    """How long it lasts at least; what fails seldom or late must have had its time to."""
    min_devices: Annotated[StrictInt, Field(ge=1, le=10**9)] = 1
    """Of the release's share that must have reported runs of the new version in this step."""
    min_exposure: Annotated[float, Field(ge=0, le=10_000)] = 3.5
    """Minutes in which each device of the release's share must have run, on average, in this step:
    at night there are few, and gates see nothing."""
    not_before: Annotated[str, AfterValidator(_moment)] | None = None
    """It begins then at the earliest."""
    hours: Hours | None = None
    """It begins in these hours only."""

    def may_begin(self, at_ms: int) -> bool:
        """Return whether its schedule lets it begin."""
        if self.not_before is not None:
            earliest = datetime.fromisoformat(self.not_before).timestamp() * 1000
            if at_ms < earliest:
                return False
        return self.hours is None or self.hours.contain(at_ms)


class BetaStep(Step):
    """Named devices come first."""

    devices: Annotated[tuple[_Text, ...], Field(min_length=1, max_length=10_000)]


class GrayStep(Step):
    """A share of all devices that the policy lets in."""

    percent: Annotated[float, Field(ge=LEAST_PERCENT, le=100)]


class SimulationStep(Strict):
    """The version runs on recorded events in VMs that mimic kinds of devices."""

    kinds: _Path
    """YAML of the kind ``DeviceKinds``."""
    events: _Path
    """JSON Lines, as ``walle device`` takes them."""
