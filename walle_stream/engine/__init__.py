"""The tensor engine: geometric computing, after Walle (OSDI 2022) and MNN.

**In** come ONNX models of opsets 1 to 28 (``load``, ``load_bytes``, ``Session``), arrays
by name for their inputs, and the tensor requests of guests (``wire.graph``), which
``expressions`` evaluates. A model file is not trusted: sizes, loops and memory are
bounded by ``limits`` before anything is allocated.

**Out** go arrays that belong to the caller, or an ``EngineError`` of one line that
names the node or the input. Profiles say where the time of a model went.

**Between**, each stage has a room: ``onnx`` reads a file into a ``graph``; ``lowering``
has a rule for each operator, which emits atomic operators and rasters with known
shapes; ``passes`` merge them; ``planning`` places tensors in one arena; ``backends``
run the steps. ``module`` cuts a graph where values decide, and keeps plans.

**Never** does the engine know streams, devices, tasks or files of a pipeline: of the
core it imports ``ports``, ``wire``, ``clock`` and ``errors`` alone. It never writes into an input
or a constant, never runs code of a model, never reads a file outside of the model's
folder. A rule never computes with numpy on data that a run gives: it emits steps, so
that every backend has every operator.

Importing this package loads neither numpy nor onnx: each name is imported when it is
first asked for. docs/engine.md says how to use it, and how to add to it.
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
