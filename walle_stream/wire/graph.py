"""A tensor request as plain values: what the codec makes and the engine takes.

Nothing but the standard library: the engine also runs where the codec's
packages are not.
"""

from typing import Final, NamedTuple

ITEM_BYTES: Final = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}
"""Size of an element by dtype."""

MAX_ELEMENTS: Final = 1 << 26
"""Most elements of a tensor: 256 MiB of float32."""

type Parameters = dict[str, int | float | str | list[int] | None]
"""Of an operator, by name."""


class Node(NamedTuple):
    """An operation; ``const`` has none."""

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
    """A request that was checked: every input is an earlier node."""

    nodes: list[Node]
    constants: dict[int, Constant]
    """By number of their node."""
    outputs: list[int]
    earlier: dict[int, tuple[int, int]] | None = None
    """Nodes that are what other requests of the crossing give, by number: which request,
    counted from the crossing's first, and which of its outputs."""
