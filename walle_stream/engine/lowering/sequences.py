"""Rules of sequences and optionals, which are known at lowering and need no steps."""

from math import ceil

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.registry import Call, Kind, Result, Value, axis_of, lowers
from walle_stream.engine.program import Tensor
from walle_stream.errors import DTypeError, LoweringError, ShapeError


@lowers("SequenceEmpty", kind=Kind.STRUCTURE)
def _empty(_call: Call) -> Result:
    return []


@lowers("SequenceConstruct", kind=Kind.STRUCTURE)
def _construct(call: Call) -> Result:
    tensors = call.tensors()
    if len({tensor.dtype for tensor in tensors}) > 1:
        listed = ", ".join(tensor.dtype.name for tensor in tensors)
        raise DTypeError(f"a sequence of {listed}: its tensors must have one dtype")
    return [*tensors]


@lowers("SequenceLength", kind=Kind.STRUCTURE)
def _length(call: Call) -> Result:
    return call.builder.constant(np.array(len(call.sequence(0)), np.int64))


@lowers("SequenceAt", kind=Kind.STRUCTURE)
def _at(call: Call) -> Result:
    result = call.sequence(0)
    return result[_position(call, 1, len(result))]


@lowers("SequenceErase", kind=Kind.STRUCTURE)
def _erase(call: Call) -> Result:
    sequence = call.sequence(0)
    if not sequence:
        raise ShapeError("an empty sequence has no element to erase")
    index = _position(call, 1, len(sequence)) if call.has(1) else len(sequence) - 1
    return [*sequence[:index], *sequence[index + 1 :]]


@lowers("SequenceInsert", kind=Kind.STRUCTURE)
def _insert(call: Call) -> Result:
    sequence, tensor = call.sequence(0), call.tensor(1)
    count = len(sequence)
    for element in sequence[:1]:
        if isinstance(element, Tensor) and element.dtype != tensor.dtype:
            raise DTypeError(f"{tensor.dtype.name} for a sequence of {element.dtype.name}")
    index = _position(call, 2, count, last=count) if call.has(2) else count
    return [*sequence[:index], tensor, *sequence[index:]]


def _position(call: Call, number: int, count: int, last: int | None = None) -> int:
    # an insertion may also come after the last element
    numbers = call.numbers(number) or ()
    if len(numbers) != 1:
        raise ShapeError(f"a position of {len(numbers)} numbers")
    if not -count <= numbers[0] <= (count - 1 if last is None else last):
        raise ShapeError(f"position {numbers[0]} in a sequence of {count}")
    return numbers[0] if numbers[0] >= 0 else numbers[0] + count


@lowers("SplitToSequence", kind=Kind.STRUCTURE)
def _split(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    axis = call.axis(x.rank, 0)
    total = x.shape[axis]
    lengths = call.optional(1)
    sizes = _sizes(call, total, lengths)
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    parts: list[Tensor] = [
        moves.slice_axis(builder, x, axis, end - size, end)
        for size, end in zip(sizes, ends, strict=True)
    ]
    if lengths is None and not call.number("keepdims", 1):
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        parts = [builder.reshape(part, shape) for part in parts]
    return [*parts]


def _sizes(call: Call, total: int, lengths: Tensor | None) -> tuple[int, ...]:
    if lengths is None:
        return (1,) * total
    numbers = call.numbers(1) or ()
    if lengths.rank:
        if sum(numbers) != total or min(numbers, default=0) < 0:
            raise ShapeError(f"parts of {list(numbers)} of {total} elements")
        return numbers
    (size,) = numbers
    if size < 1:
        raise ShapeError(f"parts of {size} elements")
    return tuple(min(size, total - size * number) for number in range(ceil(total / size)))


@lowers("ConcatFromSequence", kind=Kind.TRANSFORM)
def _concat(call: Call) -> Result:
    parts: list[Tensor] = []
    for element in call.sequence(0):
        if not isinstance(element, Tensor):
            raise LoweringError("the sequence has elements that are not tensors")
        parts.append(element)
    if not parts:
        raise ShapeError("an empty sequence cannot be joined")
    if len({part.rank for part in parts}) > 1 or len({part.dtype for part in parts}) > 1:
        raise ShapeError(f"tensors of different ranks or dtypes cannot be joined: {parts}")
    is_new = call.number("new_axis", 0)
    if is_new not in {0, 1}:
        raise LoweringError(f"attribute 'new_axis' is {is_new}, not 0 or 1")
    axis = axis_of(call.number("axis"), parts[0].rank + is_new)
    return (moves.stack if is_new else moves.concat)(call.builder, parts, axis)


@lowers("Optional", kind=Kind.STRUCTURE)
def _optional(call: Call) -> Result:
    return call.inputs[0] if call.inputs else None


@lowers("OptionalHasElement", kind=Kind.STRUCTURE)
def _has_element(call: Call) -> Result:
    return call.builder.constant(np.array(call.has(0)))


@lowers("OptionalGetElement", kind=Kind.STRUCTURE)
def _get_element(call: Call) -> Result:
    result: Value = call.inputs[0] if call.inputs else None
    if result is None:
        raise LoweringError("the optional is empty")
    return result
