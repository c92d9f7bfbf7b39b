"""The base of all parts of a definition."""

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
