"""What crosses to the host when tensors are evaluated, and back; see ``wire.tensors``."""

import struct
from array import array
from collections.abc import Iterable, Sequence
from json import dumps, loads
from math import prod
from typing import Any, Final

from walle_stream.vm.guest.tensors import CODES, EARLIER, Tensor

_HEAD: Final = struct.Struct("<I")


def is_new(tensor: Tensor) -> bool:
    """Say whether nobody asked for a tensor yet."""
    return tensor._value_ is None and tensor._operator_ != EARLIER


def needs_earlier(wanted: Iterable[Tensor]) -> bool:
    """Say whether tensors need what was postponed, and is not known yet."""
    return any(
        tensor._operator_ == EARLIER and tensor._value_ is None for tensor in _in_order(wanted)
    )


def encode_request(wanted: Sequence[Tensor], number: int = 0) -> tuple[bytes, int]:
    """Return a request as ``wire.tensors`` has it, for tensors without a value, and its nodes.

    ``number`` tells requests apart that cross together; 0 for one that crosses alone.

    Raises:
        RuntimeError: One needs what the host did not answer.
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
    """Give a request's tensors their values, from ``at`` on; return where the next one's begin."""
    begin = at + _HEAD.size
    at = begin + _HEAD.unpack_from(response, at)[0]
    outputs = loads(response[begin:at])["outputs"]
    for tensor, (dtype, shape) in zip(wanted, outputs, strict=True):
        end = at + prod(shape) * array(CODES[dtype]).itemsize
        tensor._value_ = (dtype, tuple(shape), response[at:end])
        at = end
    return at


def postpone(tensors: Iterable[Tensor], number: int) -> None:
    """Let tensors stand for what the request of a number will have given, in order."""
    for output, tensor in enumerate(tensors):
        tensor._operator_ = EARLIER
        tensor._inputs_ = ()
        tensor._parameters_ = {"request": number, "output": output}


def _in_order(wanted: Iterable[Tensor]) -> list[Tensor]:
    # inputs before what needs them; no recursion: a chain may be long
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
