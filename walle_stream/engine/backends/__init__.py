"""Backends: each has kernels of the atomic operators and a raster."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from walle_stream.errors import EngineError

_BACKENDS: Final[Mapping[str, tuple[str, str]]] = {
    "reference": ("walle_stream.engine.backends.reference", "Interpreter"),
    "numpy": ("walle_stream.engine.backends.numpy", "NumpyBackend"),
    "cupy": ("walle_stream.engine.backends.cupy", "CupyBackend"),
}


def backend_named(name: str) -> Any:
    """Make the backend ``reference``, ``numpy`` or ``cupy``; see ``engine.module.Backend``.

    Raises:
        EngineError: The name is unknown, or a package or device of the backend is missing.
    """
    entry = _BACKENDS.get(name)
    if entry is None:
        raise EngineError(f"there is no backend {name!r}: choose one of {', '.join(_BACKENDS)}")
    make: Callable[[], Any] = getattr(import_module(entry[0]), entry[1])
    return make()
