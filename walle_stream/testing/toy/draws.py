"""Random numbers by the Mersenne twister, seeded as in ONNX's cases."""

import random
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.testing.toy.elements import Elements, Value, fitted

_WORDS: Final = 624
_MASK: Final = (1 << 32) - 1


def draw(_inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
    """Draw random numbers; see ``Operator.RANDOM``.

    Args:
        parameters: ``shape``, ``dtype`` and ``seed``.

    Raises:
        ValueError: The seed has more than 32 bits.
    """
    shape, dtype, seed = parameters["shape"], parameters["dtype"], parameters.get("seed")
    numbers = random.Random()  # noqa: S311  # no secrets
    if seed is not None:
        if not 0 <= seed <= _MASK:
            raise ValueError(f"seed {seed} is not of 32 bits")
        numbers.setstate((3, (*_words(seed), _WORDS), None))
    drawn = fitted((numbers.random() for _ in range(prod(shape))), dtype)
    return Value(tuple(shape), dtype, _below_one(drawn, dtype))


def _words(seed: int) -> list[int]:
    """Expand a seed to the twister's state, as its authors did in 2002."""
    words = [seed]
    for number in range(1, _WORDS):
        last = words[-1]
        words.append((1812433253 * (last ^ last >> 30) + number) & _MASK)
    return words


def _below_one(drawn: Elements, dtype: Any) -> Elements:
    if dtype == np.float64:
        return drawn
    last = float(np.nextafter(dtype.type(1), dtype.type(0)))
    return [min(each, last) for each in drawn]
