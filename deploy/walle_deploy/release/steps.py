"""The steps of a release in its YAML: conditions for their end and for their beginning."""

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
"""One device of a hundred million; far smaller shares vanish in rounding."""
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")

type Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
"""Day of the week."""

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
    """Times of day at which a step may begin, in a time zone."""

    from_: Annotated[str, AfterValidator(_time)] = Field(alias="from")
    """Beginning, inclusive."""
    to: Annotated[str, AfterValidator(_time)]
    """End, exclusive; an end before ``from`` is on the next day."""
    days: Annotated[tuple[Day, ...], Field(min_length=1)] = _EVERY_DAY
    """Days of ``from``."""
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"

    @model_validator(mode="after")
    def _last(self) -> Self:
        if self.from_ == self.to:
            raise ValueError("hours: from and to are the same: leave hours out, or name two times")
        return self

    def contain(self, at_ms: int) -> bool:
        """Return whether a moment is within the hours."""
        local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(self.time_zone))
        clock, day = f"{local:%H:%M}", local.weekday()
        if self.from_ <= self.to:
            is_within = self.from_ <= clock < self.to
        else:
            is_within = clock >= self.from_ or clock < self.to
            day -= clock < self.to
        return is_within and _EVERY_DAY[day % 7] in self.days


class Step(Strict):
    """Conditions to fulfil before the next step begins."""

    min_duration: Duration = 600_000
    """Least duration of the step, which gives rare or late failures time to occur."""
    min_devices: Annotated[StrictInt, Field(ge=1, le=10**9)] = 1
    """Devices of the release's share that must have reported runs of the version in this step."""
    min_exposure: Annotated[float, Field(ge=0, le=10_000)] = 3.5
    """Average number of minutes in which each device of the release's share must have run in this
    step: at night there are few, and gates see nothing."""
    not_before: Annotated[str, AfterValidator(_moment)] | None = None
    """Earliest beginning of the step."""
    hours: Hours | None = None
    """Hours in which the step may begin."""

    def may_begin(self, at_ms: int) -> bool:
        """Return whether the schedule lets the step begin."""
        if self.not_before is not None:
            earliest = datetime.fromisoformat(self.not_before).timestamp() * 1000
            if at_ms < earliest:
                return False
        return self.hours is None or self.hours.contain(at_ms)


class BetaStep(Step):
    """A step for named devices, before all others."""

    devices: Annotated[tuple[_Text, ...], Field(min_length=1, max_length=10_000)]


class GrayStep(Step):
    """A step for a share of all devices that the policy admits."""

    percent: Annotated[float, Field(ge=LEAST_PERCENT, le=100)]


class SimulationStep(Strict):
    """A run of the version on recorded events, in VMs that mimic kinds of devices."""

    kinds: _Path
    """Path of a YAML file of the kind ``DeviceKinds``."""
    events: _Path
    """Path of events as JSON Lines, as ``walle device`` reads them."""
