"""The tensor engine: geometric computing, after Walle (OSDI 2022) and MNN.

**Input**: ONNX models of opsets 1 to 28 (``load``, ``load_bytes``, ``Session``), arrays by name
for their inputs, and tensor requests of guests (``wire.graph``), which ``expressions`` evaluates.
A model file is not trusted: ``limits`` bounds sizes, loops and memory before any allocation.

**Output**: arrays that belong to the caller, or an ``EngineError`` of one line that names the
node or the input. Profiles show where a model spends its time.

**Stages**: ``onnx`` reads a file into a ``graph``. ``lowering`` has a rule for each operator,
which emits atomic operators and rasters with known shapes. ``passes`` merges them, ``planning``
places tensors in one arena, and ``backends`` runs the steps. ``module`` cuts a graph at control
flow and at shapes that depend on values, and keeps plans.

**Boundaries**: the engine knows no streams, devices, tasks or files of a pipeline. Of the core it
imports only ``ports``, ``wire``, ``clock`` and ``errors``. It never writes into an input or a
constant, never runs code of a model, and never reads a file outside the model's folder. A rule
never computes with numpy on data of a run: it emits steps, so that every backend has every
operator.

Importing this package loads neither numpy nor onnx: each name is imported on first use.
docs/engine.md explains how to use and extend the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walle_stream.engine.models import Module, load, load_bytes
    from walle_stream.engine.session import Session

__all__ = ["Module", "Session", "load", "load_bytes"]

_MODULES = {"Module": "models", "Session": "session", "load": "models", "load_bytes": "models"}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
