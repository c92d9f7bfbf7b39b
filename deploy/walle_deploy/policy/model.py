"""``spec.policy`` of a release: the devices that may get the release.

A policy is a mapping, and all of its keys must hold, so ``{}`` admits every device. ``all``,
``any``, ``not`` and ``exclude`` contain policies. A condition is true, false or unknown. It is
unknown if the device does not report the value (an empty text, 0 bytes), or if no source knows the
user's attribute. ``not`` of unknown is unknown (Kleene's logic). Only a policy that is true admits
a device, so no device gets in, or around an exclusion, by saying nothing.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictFloat,
    StrictInt,
    StringConstraints,
    Tag,
    ValidationError,
    model_validator,
)

from walle_deploy.policy.versions import parse_memory_range, parse_version_range
from walle_stream.errors import SpecFileError
from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict

DEPTH_MAX: Final = 20
"""Most levels of policies within policies."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _version_range(text: str) -> str:
    parse_version_range(text)
    return text


def _memory_range(text: str) -> str:
    parse_memory_range(text)
    return text


_Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
_Texts = Annotated[tuple[_Text, ...], BeforeValidator(_listed), Field(min_length=1)]
_VersionRange = Annotated[_Text, AfterValidator(_version_range)]
_MemoryRange = Annotated[_Text, AfterValidator(_memory_range)]
_Class = Literal["low", "middle", "high"]
_Classes = Annotated[tuple[_Class, ...], BeforeValidator(_listed), Field(min_length=1)]


class IdFile(Strict):
    """A file of ids, up to millions of them."""

    file: PathField = Field(description="Text with an id per line; read again when it changes.")


def _form_of_ids(value: Any) -> str:
    return "mapping" if isinstance(value, (dict, IdFile)) else "list"


_Ids = Annotated[
    Annotated[tuple[_Text, ...], Tag("list")] | Annotated[IdFile, Tag("mapping")],
    Discriminator(_form_of_ids),
]


class Policy(Strict):
    """The devices that may get a release; all given keys must hold."""

    all_: tuple["Policy", ...] = Field(default=(), alias="all", description="Each must hold.")
    any_: tuple["Policy", ...] | None = Field(
        default=None, alias="any", min_length=1, description="One must hold."
    )
    not_: "Policy | None" = Field(default=None, alias="not", description="Must be false.")
    exclude: tuple["Policy", ...] = Field(
        default=(), description="Each must be false: devices to exclude from the release."
    )
    app: _Texts | None = Field(default=None, description="Name of the app, or one of several.")
    app_version: _VersionRange | None = Field(
        default=None, description="Range of its versions, such as '>=7.1 <8'."
    )
    os: _Texts | None = Field(default=None, description="Name of the system, or one of several.")
    os_version: _VersionRange | None = Field(default=None, description="Range of its versions.")
    model: _Texts | None = Field(
        default=None, description="Name of the hardware: patterns with *, ? and [...]."
    )
    memory: _MemoryRange | None = Field(default=None, description="Range, such as '>= 4GiB'.")
    performance: _Classes | None = Field(default=None, description="Performance classes.")
    interpreter: _Texts | None = Field(
        default=None, description="The device's Python, such as cpython-314."
    )
    age_band: _Texts | None = Field(default=None, description="The user's, as in the source.")
    region: _Texts | None = Field(default=None, description="The user's: patterns, as for models.")
    interest_tags: _Texts | None = Field(
        default=None, description="The user has at least one of these tags."
    )
    percent: StrictFloat | StrictInt | None = Field(
        default=None, ge=0, le=100, description="Share of all devices, by a stable hash."
    )
    salt: _Text | None = Field(
        default=None,
        description="Salt of the hash; policies with the same salt take the same devices.",
    )
    devices: _Ids | None = Field(default=None, description="Ids of devices, or a file of them.")
    users: _Ids | None = Field(default=None, description="Ids of users, or a file of them.")

    @model_validator(mode="after")
    def _check_salt(self) -> Self:
        if self.salt is not None and self.percent is None:
            raise ValueError("salt: needs percent, which is missing")
        return self

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Read a policy that is stored as plain JSON.

        Raises:
            SpecFileError: The JSON is not a policy, or has more than ``DEPTH_MAX`` levels.
        """
        if _depth(plain) > DEPTH_MAX:
            raise SpecFileError(f"the policy has more than {DEPTH_MAX} levels: make it flatter")
        try:
            return cls.model_validate(plain, by_alias=True, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            location = ".".join(map(str, first["loc"]))
            raise SpecFileError(f"policy: {location}: {first['msg']}") from error

    @property
    def plain(self) -> dict[str, Any]:
        """The policy as plain JSON with the YAML keys; paths as they are."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _depth(value: Any) -> int:
    # without recursion, because stored JSON may be deeper than Python's stack
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for node in level:
            if isinstance(node, Mapping):
                inner += [
                    policy
                    for key in ("all", "any", "not", "exclude")
                    for policy in (
                        node[key] if isinstance(node.get(key), (list, tuple)) else [node.get(key)]
                    )
                    if isinstance(policy, Mapping)
                ]
        depth += 1
        if depth > DEPTH_MAX:
            break
        level = inner
    return depth
