"""Steps in a row bound to their arrays: two that numpy does in one call are one."""

from collections.abc import Callable, Sequence

import numpy as np

from walle_stream.engine.backends.bound import bind
from walle_stream.engine.backends.library import Bound, Run
from walle_stream.engine.backends.spreading import SpreadConstants
from walle_stream.engine.operators import Operator
from walle_stream.engine.planning.elision import Elision
from walle_stream.engine.program import Array, Step, Tensor

type ViewOf = Callable[[Tensor], Array]


def bind_chain(
    steps: Sequence[Step], elision: Elision, view_of: ViewOf, constants: SpreadConstants
) -> list[Bound]:
    """Bind steps without loose tensors that follow each other, to calls in order.

    ``view_of`` gives what a tensor is read from and written to, ``elision`` and ``constants`` are
    of the plan.
    """
    calls: list[Bound] = []
    number = 0
    while number < len(steps):
        step = steps[number]
        after = steps[number + 1] if number + 1 < len(steps) else None
        if after is not None and _is_clip(step, after, elision):
            calls.append(Bound(_clip(step, after, view_of), after))
            number += 2
            continue
        roots = [_constant(elision.seen[each].root) for each in step.inputs]
        inputs, output = constants.laid_out(
            step.operator, [view_of(each) for each in step.inputs], roots, view_of(step.output)
        )
        calls.append(Bound(bind(step, inputs, output), step))
        number += 1
    return calls


def _constant(root: Tensor) -> Array | None:
    # what is read of another layout is read of a copy
    data = root.data
    return data if data is not None and data.flags.c_contiguous else None


def _is_clip(low: Step, high: Step, elision: Elision) -> bool:
    """Whether two steps are one ``clip``: of floats, by two numbers, read by nobody else."""
    output = low.output
    return (
        low.operator is Operator.MAXIMUM
        and high.operator is Operator.MINIMUM
        and output.dtype.name in {"float32", "float64"}
        and high.inputs[0] is output
        and len(elision.users[output]) == 1
        and _is_number(low.inputs[1], elision)
        and _is_number(high.inputs[1], elision)
    )


def _is_number(tensor: Tensor, elision: Elision) -> bool:
    root = elision.seen[tensor].root
    return root.data is not None and root.data.size == 1


def _clip(low: Step, high: Step, view_of: ViewOf) -> Run:
    x, output = view_of(low.inputs[0]), view_of(high.output)
    first, last = (view_of(each.inputs[1]) for each in (low, high))
    if not output.size:
        return lambda: None
    begin, end = (np.asarray(each[(0,) * each.ndim]) for each in (first, last))
    clip = x.clip
    return lambda: clip(begin, end, out=output)
