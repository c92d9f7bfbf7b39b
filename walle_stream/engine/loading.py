"""Reads files of models; says so where the package for it is not installed."""

from pathlib import Path
from typing import TYPE_CHECKING

from walle_stream.errors import EngineError

if TYPE_CHECKING:
    from types import ModuleType

    from walle_stream.engine.graph import Model


def read_model(path: str | Path) -> "Model":
    """Read an ONNX file; see ``onnx.importer.load_model``. Blocks."""
    model: Model = _importer().load_model(path)
    return model


def read_model_bytes(data: bytes, folder: Path | None = None) -> "Model":
    """Read an ONNX file's bytes; see ``onnx.importer.parse_model``."""
    model: Model = _importer().parse_model(data, folder=folder)
    return model


def _importer() -> "ModuleType":
    try:
        from walle_stream.engine.onnx import importer  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("walle_stream"):
            raise
        raise EngineError(
            f"models need the package {error.name!r}: install walle-stream[onnx]"
        ) from error
    return importer
