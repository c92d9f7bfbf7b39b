"""Alarms as YAML of the kind ``Alarms``: rules, and the webhook for their messages."""

from functools import partial
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from walle_deploy.model.addresses import checked_url
from walle_stream.spec.models import Metadata
from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict, refuse_twice

type Measure = Literal["failureRate", "failingDevices", "crashingDevices", "latencyP99", "silence"]
"""Measure of a rule: share of failed runs, share of devices with a failed run, share of devices
where the task crashed, 99th percentile of run times in ms, ms since the last report."""

_Share = Annotated[float, Field(ge=0, le=1)] | None
_MEASURES: Final[dict[str, Measure]] = {
    "failure_rate": "failureRate",
    "failing_devices": "failingDevices",
    "crashing_devices": "crashingDevices",
    "latency_p99": "latencyP99",
    "silence": "silence",
}


class AlarmRule(Strict):
    """A rule for one alarm: exactly one measure and its limit."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    tasks: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        default="*", description="Pattern of SCENARIO/TASK, such as shop/*."
    )
    min_runs: Annotated[int, Field(ge=1)] = Field(
        default=100, description="With fewer runs in the last minutes there is no alarm."
    )
    min_devices: Annotated[int, Field(ge=1)] = 1
    failure_rate: _Share = Field(default=None, description="Failed runs as a share of all runs.")
    failing_devices: _Share = Field(default=None, description="Share of devices with a failed run.")
    crashing_devices: _Share = Field(
        default=None, description="Share of devices where the task crashed."
    )
    latency_p99: Annotated[DurationMs, Field(ge=1)] | None = Field(default=None, alias="latencyP99")
    silence: Annotated[DurationMs, Field(ge=1_000)] | None = Field(
        default=None, description="Longest time without a report of the version."
    )

    @model_validator(mode="after")
    def _has_one_measure(self) -> Self:
        if len(self._limits) != 1:
            raise ValueError(
                f"expected one of {', '.join(_MEASURES.values())}, found "
                f"{' and '.join(self._limits) or 'none of them'}"
            )
        return self

    @property
    def measure(self) -> Measure:
        """The measure of this rule."""
        return next(iter(self._limits))

    @property
    def above(self) -> float:
        """The limit: the alarm fires while the measure is above this share (0 to 1) or ms."""
        return self._limits[self.measure]

    @property
    def _limits(self) -> dict[Measure, float]:
        limits = ((measure, getattr(self, name)) for name, measure in _MEASURES.items())
        return {measure: above for measure, above in limits if above is not None}


class WebhookSpec(Strict):
    """The address for messages, and the shared secret."""

    url: Annotated[
        str,
        Field(pattern=r"^https?://[^\s]+$", max_length=2_000),
        AfterValidator(partial(checked_url, is_bare=False)),
    ]
    secret: Annotated[str, Field(min_length=16, max_length=200)] = Field(
        description="Signs messages, shared with the receiver; ${NAME} reads the environment."
    )
    timeout: Annotated[DurationMs, Field(ge=10, le=60_000)] = 5_000
    attempts: Annotated[int, Field(ge=1, le=20)] = 6


class AlarmsSpec(Strict):
    """Body of the document: interval, webhook and rules."""

    every: Annotated[DurationMs, Field(ge=100)] = Field(
        default=10_000, description="Time between two looks at the rules."
    )
    webhook: WebhookSpec
    rules: Annotated[tuple[AlarmRule, ...], Field(min_length=1, max_length=1_000)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        refuse_twice("rules", [rule.name for rule in self.rules])
        return self


class Alarms(Strict):
    """A document of the kind ``Alarms``."""

    api_version: str
    kind: Literal["Alarms"]
    metadata: Metadata
    spec: AlarmsSpec
