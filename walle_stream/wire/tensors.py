"""Layout of tensor expressions from a guest to its host, and of the results.

A guest builds expressions without evaluating anything (``walle_guest.tensors``),
and sends one request for the needed values. The host evaluates it behind
``ports.TensorEvaluator``. All integers are little-endian.

Request::

    u32   bytes of the header
    ...   header, JSON: {"nodes": [[operator, [inputs], {parameters}], ...], "outputs": [node, ...]}
    ...   the constants' elements, end to end, in the order of their nodes

A node's inputs are numbers of earlier nodes. ``const`` has the parameters
``dtype`` and ``shape``.

Response::

    u32   bytes of the header
    ...   header, JSON: {"outputs": [[dtype, shape], ...]}
    ...   the outputs' elements, end to end

Requests of many runs cross together::

    u32   number of requests
    then for each:
    u32   bytes of the request
    ...   a request as above

Each request is answered as if it were alone, and the responses follow one another. A
node ``earlier`` without inputs is an output of an earlier request: ``back`` is the
distance to that request, and ``output`` the index of its output.

The host trusts no request, as with all bytes of a guest: it checks lengths and
numbers before their use, and bounds the cost.
"""

import struct
from collections.abc import Sequence
from math import prod
from typing import Annotated, Final

import msgspec

from walle_stream.errors import FrameError
from walle_stream.wire.graph import ITEM_BYTES, MAX_ELEMENTS, Constant, Graph, Node

MAX_NODES: Final = 10_000
MAX_CROSSING_NODES: Final = 250_000
"""Largest number of nodes in all requests that cross together."""

EARLIER: Final = "earlier"
"""Operator of a node that is an output of an earlier request."""

MAX_DIMS: Final = 8
_HEAD: Final = struct.Struct("<I")

_Dims = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=MAX_DIMS)]


class _Header(msgspec.Struct, frozen=True):
    nodes: Annotated[list[Node], msgspec.Meta(min_length=1, max_length=MAX_NODES)]
    outputs: Annotated[list[int], msgspec.Meta(min_length=1, max_length=MAX_NODES)]


def decode_graph(data: bytes) -> Graph:
    """Decode a request.

    Raises:
        FrameError: The request is malformed, or larger than the bounds.
    """
    return _decode(data, [])


def decode_graphs(data: bytes) -> list[Graph]:
    """Decode requests that cross together.

    Raises:
        FrameError: A request is malformed, or the requests are larger than the bounds.
    """
    (count,) = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (0,)
    if not 0 < count <= MAX_CROSSING_NODES:
        raise FrameError(f"{count} tensor requests cross together: 1 to {MAX_CROSSING_NODES} may")
    graphs: list[Graph] = []
    at, node_count = _HEAD.size, 0
    for _ in range(count):
        begin = at + _HEAD.size
        at = begin + _HEAD.unpack_from(data, at)[0] if begin <= len(data) else len(data) + 1
        if at > len(data):
            raise FrameError("tensor requests that cross together are cut")
        graphs.append(_decode(data[begin:at], graphs))
        node_count += len(graphs[-1].nodes)
        if node_count > MAX_CROSSING_NODES:
            raise FrameError(
                f"tensor requests that cross together have more than {MAX_CROSSING_NODES} nodes"
            )
    if at != len(data):
        raise FrameError("tensor requests that cross together do not add up")
    return graphs


def _decode(data: bytes, before: Sequence[Graph]) -> Graph:
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[0] > len(data) - _HEAD.size:
        raise FrameError(f"a tensor request is cut: {len(data)} bytes hold no header")
    end = _HEAD.size + _HEAD.unpack_from(data)[0]
    try:
        header = msgspec.json.decode(data[_HEAD.size : end], type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"a tensor request is malformed: {error}") from error
    constants = {}
    earlier: dict[int, tuple[int, int]] = {}
    at = end
    for number, node in enumerate(header.nodes):
        if not all(0 <= index < number for index in node.inputs):
            raise FrameError(f"a tensor request is malformed: node {number} needs a later one")
        if node.operator == "const":
            constants[number] = constant = _cut(number, node, data, at)
            at += len(constant.data)
        elif node.operator == EARLIER:
            earlier[number] = _found(number, node, before)
    if at != len(data) or not all(0 <= index < len(header.nodes) for index in header.outputs):
        raise FrameError("a tensor request does not add up: its constants or outputs")
    return Graph(header.nodes, constants, header.outputs, earlier)


def encode_values(values: Sequence[Constant]) -> bytes:
    """Encode a response: the outputs, in order."""
    header = msgspec.json.encode({"outputs": [[value.dtype, value.shape] for value in values]})
    return b"".join((_HEAD.pack(len(header)), header, *(value.data for value in values)))


def _found(number: int, node: Node, before: Sequence[Graph]) -> tuple[int, int]:
    back, output = node.parameters.get("back"), node.parameters.get("output")
    if type(back) is int and type(output) is int and 0 < back <= len(before):
        request = len(before) - back
        if 0 <= output < len(before[request].outputs):
            return request, output
    raise FrameError(
        f"a tensor request is malformed: node {number} is not an output of an earlier request"
    )


def _cut(number: int, node: Node, data: bytes, at: int) -> Constant:
    dtype = node.parameters.get("dtype")
    try:
        shape = msgspec.convert(node.parameters.get("shape"), _Dims)
    except msgspec.ValidationError as error:
        raise FrameError(f"a tensor request is malformed: node {number}: {error}") from error
    count = prod(shape)
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES or count > MAX_ELEMENTS:
        raise FrameError(
            f"a tensor request is malformed: node {number} is {dtype} of {count} elements"
        )
    end = at + count * ITEM_BYTES[dtype]
    if end > len(data):
        raise FrameError(f"a tensor request is cut: node {number} has less than its elements")
    return Constant(dtype, tuple(shape), data[at:end])
