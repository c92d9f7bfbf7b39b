"""Inputs of a model from the command line: files, shapes, or made-up arrays."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from walle_stream.engine import Module
from walle_stream.engine.graph import TensorType
from walle_stream.engine.rules import check_size, is_floating
from walle_stream.errors import EngineError

_SHAPE: Final = re.compile(r"\d{1,12}(?:[x,]\d{1,12})*")
_SEED: Final = 0


def given_inputs(named: Mapping[str, str]) -> dict[str, Any]:
    """Read the arrays of the named files."""
    return {name: _read(name, path) for name, path in named.items()}


def made_inputs(module: Module, named: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Read arrays, or make them: random floats, zero integers and bools, empty text.

    ``named`` has shapes (``1,3,224,224`` or ``1x3x224x224``) or paths of files. An input left out
    has the model's shape. Returns arrays by name, and lines about assumed shapes.

    Raises:
        EngineError: An input is unknown, or its dtype or shape is.
    """
    unknown = next((name for name in named if name not in module.model.graph.inputs), None)
    if unknown is not None:
        listed = ", ".join(map(repr, module.inputs)) or "none"
        raise EngineError(f"the model has no input {unknown!r}: it has {listed}")
    arrays = {name: _read(name, text) for name, text in named.items() if not _is_shape(text)}
    shapes = {name: _shape(text) for name, text in named.items() if _is_shape(text)}
    sizes = _sizes(module, {**shapes, **{name: array.shape for name, array in arrays.items()}})
    generator = np.random.default_rng(_SEED)
    notes: list[str] = []
    for name in dict.fromkeys([*module.inputs, *shapes]):
        if name in arrays:
            continue
        kind = module.model.graph.inputs[name]
        if not isinstance(kind, TensorType):
            raise EngineError(
                f"input {name!r} is not a tensor of a known dtype: give it as {name}=FILE.npy"
            )
        shape = shapes.get(name)
        if shape is None:
            shape = _assumed(name, kind, sizes, notes)
        arrays[name] = _array(kind, check_size(shape, f"input {name!r}"), generator)
    return arrays, notes


def _is_shape(text: str) -> bool:
    return not text or _SHAPE.fullmatch(text) is not None


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in re.split("[x,]", text) if size)


def _sizes(module: Module, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes of the named axes of the given shapes."""
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        kind = module.model.graph.inputs[name]
        if isinstance(kind, TensorType) and kind.shape is not None:
            pairs = zip(kind.shape, shape, strict=False)
            sizes.update((axis, size) for axis, size in pairs if isinstance(axis, str))
    return sizes


def _assumed(
    name: str, kind: TensorType, sizes: Mapping[str, int], notes: list[str]
) -> tuple[int, ...]:
    if kind.shape is None:
        raise EngineError(f"input {name!r} may have any shape: give one, as {name}=1,3,224,224")
    shape = tuple(
        size if isinstance(size, int) else sizes.get(size or "", 1) for size in kind.shape
    )
    if any(not isinstance(size, int) and (size or "") not in sizes for size in kind.shape):
        said = ", ".join("?" if size is None else str(size) for size in kind.shape)
        notes.append(
            f"input {name!r} has shape [{said}], assumed {list(shape)}: --input {name}=SHAPE "
            "sets it"
        )
    return shape


def _array(kind: TensorType, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
    try:
        if kind.dtype == object:
            return np.full(shape, "", object)
        if not is_floating(kind.dtype):
            return np.zeros(shape, kind.dtype)
        return generator.standard_normal(shape, np.float32).astype(kind.dtype)
    except MemoryError as error:
        raise EngineError(f"no memory for an input of shape {list(shape)}") from error


def _read(name: str, path: str) -> Any:
    try:
        array = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "it is not an array in numpy's format"
        raise EngineError(f"input {name!r}: {path}: {reason}") from error
    if not isinstance(array, np.ndarray):
        raise EngineError(f"input {name!r}: {path}: it is an archive, not one array")
    return array
