"""The base of all parts of a definition."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Strict(BaseModel):
    """Base of all parts of a definition."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        # built at the first use, because most commands never validate
        defer_build=True,
    )


def refuse_twice(where: str, names: Sequence[str]) -> None:
    """Refuse a list at the key ``where`` that has a name twice; for validators.

    Raises:
        ValueError: A name appears twice.
    """
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: the name {name!r} stands here twice")
