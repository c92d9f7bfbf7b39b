"""Alarms as YAML of the kind ``Alarms``: rules, and where their messages go."""

from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from walle_deploy.model.addresses import checked_url
from walle_deploy.monitoring.alarms import AlarmRule, Measure
from walle_deploy.monitoring.webhook import WebhookOptions
from walle_stream.spec.models import Metadata
from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.single import load_single
from walle_stream.spec.strict import Strict, refuse_twice

_Share = Annotated[float, Field(ge=0, le=1)] | None
_MEASURES: Final[dict[str, Measure]] = {
    "failure_rate": "failureRate",
    "failing_devices": "failingDevices",
    "crashing_devices": "crashingDevices",
    "latency_p99": "latencyP99",
    "silence": "silence",
}
_S: Final = 1_000


class RuleSpec(Strict):
    """One rule: exactly one of its measures, and how much is too much."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    tasks: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        default="*", description="Pattern of SCENARIO/TASK, such as shop/*."
    )
    min_runs: Annotated[int, Field(ge=1)] = Field(
        default=100, description="With fewer runs in the last minutes nothing is said."
    )
    min_devices: Annotated[int, Field(ge=1)] = 1
    failure_rate: _Share = Field(default=None, description="Failed of all runs.")
    failing_devices: _Share = Field(default=None, description="Devices with a failed run.")
    crashing_devices: _Share = Field(default=None, description="Devices where the task crashed.")
    latency_p99: Annotated[DurationMs, Field(ge=1)] | None = Field(default=None, alias="latencyP99")
    silence: Annotated[DurationMs, Field(ge=1_000)] | None = Field(
        default=None, description="No device has reported the version for so long."
    )

    @model_validator(mode="after")
    def _has_one_measure(self) -> Self:
        given = [measure for name, measure in _MEASURES.items() if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected one of {', '.join(_MEASURES.values())}, found "
                f"{' and '.join(given) or 'none of them'}"
            )
        return self

    @property
    def rule(self) -> AlarmRule:
        """As the board takes it."""
        [(measure, above)] = [
            (measure, getattr(self, name))
            for name, measure in _MEASURES.items()
            if getattr(self, name) is not None
        ]
        return AlarmRule(
            name=self.name,
            measure=measure,
            above=above,
            tasks=self.tasks,
            min_runs=self.min_runs,
            min_devices=self.min_devices,
        )


class WebhookSpec(Strict):
    """Where messages go."""

    url: Annotated[
        str,
        Field(pattern=r"^https?://[^\s]+$", max_length=2_000),
        AfterValidator(partial(checked_url, is_bare=False)),
    ]
    secret: Annotated[str, Field(min_length=16, max_length=200)] = Field(
        description="Shared with the receiver, to sign with; ${NAME} takes it from the environment."
    )
    timeout: Annotated[DurationMs, Field(ge=10, le=60_000)] = 5_000
    attempts: Annotated[int, Field(ge=1, le=20)] = 6

    @property
    def options(self) -> WebhookOptions:
        """As the webhook takes them."""
        return WebhookOptions(timeout_s=self.timeout / _S, attempts=self.attempts)


class AlarmsSpec(Strict):
    """All of it."""

    every: Annotated[DurationMs, Field(ge=100)] = Field(
        default=10_000, description="How often somebody looks."
    )
    webhook: WebhookSpec
    rules: Annotated[tuple[RuleSpec, ...], Field(min_length=1, max_length=1_000)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        refuse_twice("rules", [rule.name for rule in self.rules])
        return self


class Alarms(Strict):
    """The document."""

    api_version: str
    kind: Literal["Alarms"]
    metadata: Metadata
    spec: AlarmsSpec


def load_alarms(file: Path) -> AlarmsSpec:
    """Load alarms.

    Raises:
        SpecFileError: It is wrong; the message names the place.
    """
    return load_single(file, Alarms).spec
