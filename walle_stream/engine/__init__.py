"""The tensor engine: geometric computing, after Walle and MNN.

``load`` reads an ONNX model and gives a ``Module``, which runs any graph;
``Session`` is for one set of shapes. Every name is imported when it is first
asked for: importing this package loads neither numpy nor onnx. docs/engine.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walle_stream.engine.models import Module, load, load_bytes
    from walle_stream.engine.session import Session

__all__ = ["Module", "Session", "load", "load_bytes"]

_PLACES = {"Module": "models", "Session": "session", "load": "models", "load_bytes": "models"}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
