"""A sink: merged features as rows of a PostgreSQL table (extra ``postgres``)."""

import re
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from walle_stream.errors import SpecFileError
from walle_stream.errors.extras import how_to_install
from walle_stream.spec.strict import Strict

if TYPE_CHECKING:
    from walle_connectors.postgres.sink import PostgresSink

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]{0,62}"


def _checked(url: str) -> str:
    if not re.match(r"postgres(ql)?://|\s*\w+\s*=", url):
        raise ValueError("expected postgresql://USER@HOST/DATABASE")  # the text may hold a password
    return url


class PostgresSinkModel(Strict):
    """Keys under ``spec.sinks`` of this connector."""

    url: Annotated[str, AfterValidator(_checked)] = Field(
        description="Address for libpq: postgresql://USER@HOST/DATABASE, or KEY=VALUE."
    )
    table: Annotated[str, StringConstraints(pattern=rf"^({_NAME}\.)?{_NAME}$")] = Field(
        default="walle_features", description="NAME or SCHEMA.NAME; made if it is missing."
    )

    def places(self) -> dict[str, frozenset[tuple[str, str]]]:
        """Return the table; see ``walle_stream.spec.places.HasPlaces``."""
        return {"table": frozenset({(self.url, self.table)})}


class PostgresConnector:
    """Entry point ``postgres``."""

    name: Final = "postgres"
    sink_model: Final = PostgresSinkModel

    def open_sink(self, model: PostgresSinkModel, identity: str) -> "PostgresSink":
        """Prepare; the first features connect to the database.

        ``identity`` names pipeline and sink to the database.

        Raises:
            SpecFileError: psycopg is not installed.
        """
        try:
            from walle_connectors.postgres.sink import PostgresSink  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise SpecFileError(
                f"psycopg is not installed: {how_to_install('postgres')}"
            ) from error
        return PostgresSink(model.url, model.table, identity)


CONNECTOR: Final = PostgresConnector()
