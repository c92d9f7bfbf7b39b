"""Models before they are lowered: graphs of nodes that name their values.

An importer makes them; this module knows no file format. Names, attributes and operators are
those of ONNX, the usual exchange format for models. The opset imports give the version of an
operator that a node means.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from walle_stream.engine.program import Array, DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """Dtype of an input or output, and the known part of its shape."""

    dtype: DType
    shape: tuple[int | str | None, ...] | None = None
    """Each axis is a number, a name that stands for one number, or None. None: any rank."""


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: "ValueType"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be empty."""

    element: "ValueType"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys of a dtype to values."""

    key: DType
    value: "ValueType"


TITLE_MAX: Final = 200

type ValueType = TensorType | SequenceType | OptionalType | MapType | None


def _shown(name: str) -> str:
    # a name comes from a file, but a message must be one line of bounded length
    short = name if len(name) <= TITLE_MAX else f"{name[:TITLE_MAX]}..."
    return short if short.isprintable() else ascii(short)


class OperatorKey(NamedTuple):
    """Key of the operator, or of the model's function, that a node calls."""

    domain: str
    name: str
    overload: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator applied to values; an empty name stands for an omitted input or output."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, text (bytes), arrays, graphs, and tuples of them."""
    name: str = ""
    domain: str = ""
    version: int = 0
    """The version of the operator's domain for which the node was written."""
    overload: str = ""

    @property
    def title(self) -> str:
        """Name of the node in messages."""
        called = self.name or ", ".join(name for name in self.outputs if name)
        return f"node {_shown(called)!r} ({_shown(self.qualified_operator)}, opset {self.version})"

    @property
    def key(self) -> OperatorKey:
        """Key of the operator or function that the node calls."""
        return OperatorKey(self.domain, self.operator, self.overload)

    @property
    def qualified_operator(self) -> str:
        """The operator, after its domain unless that is ONNX's own."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator

    @property
    def first_output(self) -> str:
        """Name of the first output that has a name; no other node makes it."""
        return next((name for name in self.outputs if name), "")

    @property
    def needed(self) -> set[str]:
        """Names of the values that the node reads, including those that its graphs read."""
        free = (name for graph in self.graphs() for name in graph.free_names)
        return {*self.inputs, *free} - {""}

    def within(self) -> Iterator["Node"]:
        """Yield the node itself and, recursively, the nodes of its graphs."""
        yield self
        for graph in self.graphs():
            for node in graph.nodes:
                yield from node.within()

    def graphs(self) -> Iterator["Graph"]:
        """Yield the graphs among the attributes."""
        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value
            elif isinstance(value, tuple):
                yield from (element for element in value if isinstance(element, Graph))


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in topological order: each comes after the nodes that make its inputs."""

    name: str
    inputs: Mapping[str, ValueType]
    """Types by name, in order. A caller may omit an input that has a constant as default."""
    outputs: Mapping[str, ValueType]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)

    @cached_property
    def free_names(self) -> frozenset[str]:
        """Names of an enclosing graph that this one reads."""
        known = {*self.inputs, *self.constants}
        free: set[str] = set()
        for node in self.nodes:
            free |= node.needed - known
            known |= set(node.outputs)
        free |= set(self.outputs) - known
        return frozenset(free)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, with the whole memory of weights whose rows have gaps.

        numpy would copy such a view into the pickle. Contiguous memory goes into a buffer of its
        own, which processes share.
        """
        packed = {name: _Gapped.of(data) or data for name, data in self.constants.items()}
        return {**vars(self), "constants": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the pickled state."""
        constants = {
            name: data.view() if isinstance(data, _Gapped) else data
            for name, data in state["constants"].items()
        }
        vars(self).update({**state, "constants": constants})


class _Gapped(NamedTuple):
    """A matrix with gaps between its rows; see ``planning.weights``."""

    memory: Array
    columns: int

    @classmethod
    def of(cls, data: Array) -> "_Gapped | None":
        memory = data.base
        if not isinstance(memory, np.ndarray) or not memory.flags.c_contiguous:
            return None
        if data.ndim != 2 or data.flags.contiguous or memory.dtype != data.dtype:  # noqa: PLR2004
            return None
        is_begin = memory.ctypes.data == data.ctypes.data and data.strides == memory.strides
        return cls(memory, data.shape[1]) if is_begin and len(memory) == len(data) else None

    def view(self) -> Array:
        matrix = self.memory[:, : self.columns]
        matrix.flags.writeable = False
        return matrix


@dataclass(frozen=True, slots=True)
class Function:
    """An operator that a model defines as a list of nodes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    """Names to which its nodes may refer."""
    defaults: Mapping[str, Any]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A graph, the functions that it calls, and the opset version of each domain."""

    graph: Graph
    functions: Mapping[OperatorKey, Function] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """Stands for an attribute of the function that contains a node."""

    name: str
