"""A tensor request as plain values, which the codec makes and the engine takes.

This module needs only the standard library, because the engine also runs without
the codec's packages.
"""

from typing import Final, NamedTuple

ITEM_BYTES: Final = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}
"""Size of an element by dtype."""

MAX_ELEMENTS: Final = 1 << 26
"""Largest number of elements of a tensor: 256 MiB of float32."""

type Parameters = dict[str, int | float | str | list[int] | None]
"""Parameters of an operator, by name."""


class Node(NamedTuple):
    """An operation; a ``const`` computes nothing."""

    operator: str
    inputs: list[int]
    """Numbers of earlier nodes."""
    parameters: Parameters


class Constant(NamedTuple):
    """A tensor's elements in row-major order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Graph(NamedTuple):
    """A checked request, in which every input is an earlier node."""

    nodes: list[Node]
    constants: dict[int, Constant]
    """Constants by number of their node."""
    outputs: list[int]
    earlier: dict[int, tuple[int, int]] | None = None
    """Nodes that are outputs of earlier requests of the same exchange, by number: index of
    the request, counted from the first, and index of its output."""
