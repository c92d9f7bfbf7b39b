"""Bounds of the constants that rules make."""

from math import prod
from typing import Final

from walle_stream.engine.region import Shape
from walle_stream.engine.rules import check_size
from walle_stream.errors import ShapeError

TABLE_MAX: Final = 1 << 28
"""Most elements of a constant that a rule makes: it is made while the graph is lowered."""


def check_table(shape: Shape, what: str) -> Shape:
    """Refuse a constant that is too large to be made, before it is.

    Raises:
        ShapeError: It is negative, or beyond ``TABLE_MAX``.
    """
    if prod(check_size(shape, what)) > TABLE_MAX:
        raise ShapeError(f"{what} of shape {list(shape)} has more than {TABLE_MAX} elements")
    return shape
