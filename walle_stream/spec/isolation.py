"""``spec.isolation`` of a task: a policy alone, or with the limits of its processes."""

from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

type Policy = Literal["shared", "device", "process"]
"""Which devices share a VM; each policy is stronger than the one before."""

POLICIES: Final[tuple[Policy, ...]] = ("shared", "device", "process")
"""The weakest first."""

type Measure = Literal[
    "memory_limit",
    "file_limits",
    "own_network",
    "own_user",
    "no_processes",
    "not_dumpable",
    "dies_with_host",
    "no_new_privileges",
    "syscall_filter",
]
"""A measure with which a process VM's child confines itself, named as in docs/isolation.md."""

_MIB: Final = 2**20
_OF_PROCESSES: Final = {"memory_bytes": "memory", "cpu_ms": "cpu", "require": "require"}


def _or_policy(schema: dict[str, Any]) -> None:
    whole = dict(schema)
    schema.clear()
    schema["description"] = whole.pop("description", "")
    schema["anyOf"] = [{"type": "string", "enum": list(POLICIES)}, whole]


class IsolationSpec(Strict):
    """Isolation of a task's runs from others; a plain policy name is short for that policy."""

    model_config = ConfigDict(json_schema_extra=_or_policy)
    policy: Policy = Field(
        default="shared",
        description="shared: all devices share a VM; device: each has its own; process: each has "
        "its own, in a process.",
    )
    memory_bytes: SizeBytes = Field(
        default=256 * _MIB,
        alias="memory",
        ge=64 * _MIB,
        le=2**40,
        description="Memory of one process VM, its interpreter included.",
    )
    cpu_ms: DurationMs | None = Field(
        default=None,
        alias="cpu",
        ge=10,
        le=3_600_000,
        description="CPU time of one run, on Linux; only limits.wallTime counts when left out.",
    )
    require: tuple[Measure, ...] = Field(
        default=(), description="Measures without which the pipeline does not start."
    )

    @model_validator(mode="before")
    @classmethod
    def _take_policy(cls, value: Any) -> Any:
        return value if isinstance(value, (dict, IsolationSpec)) else {"policy": value}

    @model_validator(mode="after")
    def _confines_a_process(self) -> Self:
        for field, key in _OF_PROCESSES.items():
            if self.policy != "process" and field in self.model_fields_set:
                raise ValueError(f"{key}: is for policy: process; {self.policy} has none")
        return self
