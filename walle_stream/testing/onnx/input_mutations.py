"""Mutations of a model's inputs: unexpected names, dtypes, shapes and values."""

import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final

import numpy as np

from walle_stream.testing.onnx.mutations import ODD_INTS, happens

type Named = list[tuple[str, Any]]
"""Inputs by name, in order; a name may be repeated or unknown to the model."""

CHANGED_BYTES_MAX: Final = 1 << 24
"""Limit of copied arrays; broadcast arrays without memory may be larger."""

DTYPES: Final = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "float32", "float64", "complex64", "complex128", "object", "datetime64[s]", ">f4", "S3", "U3",
)  # fmt: skip


def mutate_inputs(rng: Random, inputs: Named) -> str:
    """Mutate the inputs of a model.

    Args:
        rng: Source of random choices.
        inputs: Inputs, changed in place.

    Returns:
        Name of the mutation.
    """
    if not inputs or happens(rng, 5):
        inputs.append((rng.choice(("nobody", "", "x")), np.zeros(3, np.float32)))
        return "extra"
    at = rng.randrange(len(inputs))
    name, value = inputs[at]
    match rng.randrange(10):
        case 0:
            inputs[at] = (rng.choice(("nobody", name + "x")), value)
            return "renamed"
        case 1:
            del inputs[at]
            return "missing"
        case 2:
            odd: tuple[Any, ...] = (
                None,
                [],
                [value],
                "text",
                b"\xff",
                3,
                2.5,
                {},
                object(),
                [[1], [1, 2]],
                2**70,
            )
            inputs[at] = (name, rng.choice(odd))
            return "no tensor"
    if not isinstance(value, np.ndarray):
        if isinstance(value, list) and value:
            inner: Named = [("", rng.choice(value))]
            mutate_inputs(rng, inner)
            inputs[at] = (name, [*value, *(each for _, each in inner)])
        return "sequence"
    kind, changed = rng.choice(list(_changed_arrays(rng, value)))
    inputs[at] = (name, changed)
    return kind


def _changed_arrays(rng: Random, value: Any) -> Iterator[tuple[str, Any]]:
    shape = list(value.shape)
    yield (
        "empty",
        np.zeros([0 if number == 0 else size for number, size in enumerate(shape)], value.dtype),
    )
    yield "empty", np.zeros([0] * len(shape), value.dtype)
    yield "flat", value.reshape(-1)
    yield "rank", value[None]
    # broadcast without memory, up to numpy's largest size
    times = 2 ** rng.choice((20, 31, 40))
    with suppress(ValueError):
        yield "huge", np.broadcast_to(np.zeros((), value.dtype), [times, *shape])
    yield "backwards", value.reshape(-1)[::-1].reshape(shape[::-1]).T
    if value.size and value.dtype.char in "efdgbBhHiIlLqQ" and value.nbytes <= CHANGED_BYTES_MAX:
        changed = value.copy()
        for _ in range(rng.choice((1, 1, 3))):
            place = rng.randrange(changed.size)
            info: Any = np.finfo(value.dtype) if value.dtype.kind == "f" else np.iinfo(value.dtype)
            numbers: list[Any] = [0, 1, info.min, info.max]
            if value.dtype.kind == "f":
                numbers += [math.nan, math.inf, -math.inf]
            else:
                numbers += [each for each in ODD_INTS if info.min <= each <= info.max]
            changed.reshape(-1)[place] = rng.choice(numbers)
        for _ in range(6):
            yield "value", changed
    if value.nbytes > CHANGED_BYTES_MAX:
        return
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            changed = value.astype(rng.choice(DTYPES))
        yield "dtype", changed
    except (ValueError, TypeError, OverflowError, RuntimeError):
        yield "dtype", np.zeros(shape, "float64")
