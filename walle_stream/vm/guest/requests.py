"""Requests to the host for the values of tensors, and its responses; see ``wire.tensors``."""

import struct
from array import array
from collections.abc import Iterable, Sequence
from json import dumps, loads
from math import prod
from typing import Any, Final

from walle_stream.vm.guest.tensors import CODES, EARLIER, Tensor

_HEAD: Final = struct.Struct("<I")


def is_new(tensor: Tensor) -> bool:
    """Return whether a tensor was in no request yet."""
    return tensor._value_ is None and tensor._operator_ != EARLIER


def needs_earlier(wanted: Iterable[Tensor]) -> bool:
    """Return whether tensors need postponed values that are not known yet."""
    return any(
        tensor._operator_ == EARLIER and tensor._value_ is None for tensor in _in_order(wanted)
    )


def encode_request(wanted: Sequence[Tensor], number: int = 0) -> tuple[bytes, int]:
    """Return a request in ``wire.tensors`` for tensors without a value, and its number of nodes.

    ``number`` distinguishes requests that cross together; 0 for a request that crosses alone.

    Raises:
        RuntimeError: A tensor needs a value that the host did not return.
    """
    numbers: dict[int, int] = {}
    nodes: list[list[Any]] = []
    parts: list[bytes] = []
    for tensor in _in_order(wanted):
        numbers[id(tensor)] = len(nodes)
        value = tensor._value_
        if value is not None:
            nodes.append(["const", [], {"dtype": value[0], "shape": value[1]}])
            parts.append(value[2])
        elif tensor._operator_ == EARLIER:
            asked, output = tensor._parameters_["request"], tensor._parameters_["output"]
            if asked >= number:
                raise RuntimeError("the host did not answer")
            nodes.append([EARLIER, [], {"back": number - asked, "output": output}])
        else:
            inputs = [numbers[id(input_)] for input_ in tensor._inputs_]
            nodes.append([tensor._operator_, inputs, tensor._parameters_])
    header = dumps({"nodes": nodes, "outputs": [numbers[id(tensor)] for tensor in wanted]}).encode()
    return b"".join((_HEAD.pack(len(header)), header, *parts)), len(nodes)


def take_response(response: bytes, at: int, wanted: Sequence[Tensor]) -> int:
    """Set the values of a request's tensors from ``at`` on; return the offset of the next ones."""
    begin = at + _HEAD.size
    at = begin + _HEAD.unpack_from(response, at)[0]
    outputs = loads(response[begin:at])["outputs"]
    for tensor, (dtype, shape) in zip(wanted, outputs, strict=True):
        end = at + prod(shape) * array(CODES[dtype]).itemsize
        tensor._value_ = (dtype, tuple(shape), response[at:end])
        at = end
    return at


def postpone(tensors: Iterable[Tensor], number: int) -> None:
    """Turn tensors into references to the outputs of request ``number``, in order."""
    for output, tensor in enumerate(tensors):
        tensor._operator_ = EARLIER
        tensor._inputs_ = ()
        tensor._parameters_ = {"request": number, "output": output}


def _in_order(wanted: Iterable[Tensor]) -> list[Tensor]:
    # inputs before the tensors that need them; no recursion, because a chain may be long
    order: list[Tensor] = []
    seen: set[int] = set()
    waiting = [(tensor, False) for tensor in wanted]
    while waiting:
        tensor, is_ready = waiting.pop()
        if is_ready:
            order.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            waiting.append((tensor, True))
            if tensor._value_ is None:
                waiting += [(input_, False) for input_ in tensor._inputs_]
    return order
