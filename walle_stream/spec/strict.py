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
        # built when first used: most commands never validate
        defer_build=True,
    )


def refuse_twice(where: str, names: Sequence[str]) -> None:
    """Refuse names of which one stands there twice; for validators.

    Args:
        where: Key of the list that they are from.
        names: Of its items.

    Raises:
        ValueError: One stands there twice.
    """
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: the name {name!r} stands here twice")
