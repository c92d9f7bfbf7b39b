"""A sink: merged features as a data set of Parquet files, through pyarrow (extra ``parquet``)."""

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from walle_stream.spec.paths import PathField
from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict

if TYPE_CHECKING:
    from pathlib import Path

    from walle_connectors.parquet.sink import ParquetSink


class ParquetSinkModel(Strict):
    """Keys under ``spec.sinks`` of this connector."""

    path: Annotated[PathField, AfterValidator(lambda path: path.absolute())] = Field(
        description="Folder of the data set; for one pipeline only."
    )
    every_ms: DurationMs = Field(
        default=10_000,
        alias="every",
        ge=100,
        description="Shortest time between two writes of a file that is not full.",
    )

    def places(self) -> "dict[str, frozenset[Path]]":
        """Return the folder; see ``walle_stream.spec.places.HasPlaces``."""
        return {"path": frozenset({self.path})}


class ParquetConnector:
    """Entry point ``parquet``."""

    name: Final = "parquet"
    sink_model: Final = ParquetSinkModel

    def open_sink(self, model: ParquetSinkModel, identity: str) -> "ParquetSink":
        """Open the data set; files are made with the first features.

        ``identity`` names pipeline and sink; this sink does not use it.

        Raises:
            WalleError: pyarrow is not installed, or the folder cannot be made.
        """
        del identity
        from walle_connectors.parquet.sink import ParquetSink  # noqa: PLC0415 - an extra

        return ParquetSink(model.path, model.every_ms / 1_000)


CONNECTOR: Final = ParquetConnector()
