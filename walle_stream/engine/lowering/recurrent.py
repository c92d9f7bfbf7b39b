"""RNN, GRU and LSTM, unrolled over time.

What a step needs of its input is one product for all steps. Both directions run in
one product a step where they have the same functions: the backward one reads its
input reversed.
"""

from collections.abc import Callable, Sequence
from functools import partial

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.recurrent_layer import (
    Function,
    Layer,
    activated,
    functions_of,
    layer_of,
)
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, View

type _State = tuple[Tensor, ...]
type _Step = Callable[[Tensor, _State], _State]
"""Takes what the input gives to the gates and the states before; gives those after."""


@lowers("RNN")
def _rnn(call: Call) -> Result:
    layer = layer_of(call, gates=1, states=1)

    def begin(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
        builder = group.builder
        return _projected(group, _bias_sum(group)), partial(
            _rnn_step, builder, group, group.transposed(group.recurrence), functions[0]
        )

    return _run(call, layer, functions_of(call, ("Tanh",), layer.directions), begin)


def _rnn_step(
    builder: Builder, group: Layer, weights: Tensor, function: Function, x: Tensor, state: _State
) -> _State:
    return (activated(group, function, builder.add(x, builder.matmul(state[0], weights))),)


@lowers("GRU")
def _gru(call: Call) -> Result:
    layer = layer_of(call, gates=3, states=1)
    is_linear = bool(call.number("linear_before_reset", 0))

    def begin(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
        size = group.hidden
        weights = group.transposed(group.recurrence)
        bias, inner = _bias_sum(group), None
        if group.bias is not None and is_linear:
            # the reset gate scales the recurrent bias of the hidden gate, too
            own = moves.slice_axis(group.builder, group.bias, 1, 0, 3 * size)
            other = moves.slice_axis(group.builder, group.bias, 1, 3 * size, 6 * size)
            outer = moves.pad(
                group.builder, moves.slice_axis(group.builder, other, 1, 0, 2 * size),
                (0, 0), (0, size),
            )  # fmt: skip
            bias = group.spread(group.builder.add(own, outer))
            inner = group.spread(moves.slice_axis(group.builder, other, 1, 2 * size, 3 * size))
        if is_linear:
            return _projected(group, bias), partial(
                _gru_linear_step, group, functions, weights, inner
            )
        halves = (
            moves.slice_axis(group.builder, weights, 2, 0, 2 * size),
            moves.slice_axis(group.builder, weights, 2, 2 * size, 3 * size),
        )
        return _projected(group, bias), partial(_gru_step, group, functions, halves)

    return _run(call, layer, functions_of(call, ("Sigmoid", "Tanh"), layer.directions), begin)


def _gru_step(
    group: Layer, functions: Sequence[Function], weights: tuple[Tensor, Tensor],
    x: Tensor, state: _State,
) -> _State:  # fmt: skip
    builder, (before,) = group.builder, state
    both = builder.add(group.gates(x, 0, 2), builder.matmul(before, weights[0]))
    both = activated(group, functions[0], both)
    reset = builder.mul(group.gates(both, 1, 2), before)
    hidden = builder.add(group.gates(x, 2, 3), builder.matmul(reset, weights[1]))
    return (_mixed(group, both, activated(group, functions[1], hidden), before),)


def _gru_linear_step(
    group: Layer, functions: Sequence[Function], weights: Tensor, inner: Tensor | None,
    x: Tensor, state: _State,
) -> _State:  # fmt: skip
    builder, (before,) = group.builder, state
    product = builder.matmul(before, weights)
    both = builder.add(group.gates(x, 0, 2), group.gates(product, 0, 2))
    both = activated(group, functions[0], both)
    hidden = group.gates(product, 2, 3)
    hidden = hidden if inner is None else builder.add(hidden, inner)
    hidden = builder.add(group.gates(x, 2, 3), builder.mul(group.gates(both, 1, 2), hidden))
    return (_mixed(group, both, activated(group, functions[1], hidden), before),)


def _mixed(group: Layer, gates: Tensor, hidden: Tensor, before: Tensor) -> Tensor:
    builder, update = group.builder, group.gates(gates, 0, 1)
    return builder.add(builder.mul(builder.sub(1, update), hidden), builder.mul(update, before))


@lowers("LSTM")
def _lstm(call: Call) -> Result:
    layer = layer_of(call, gates=4, states=2)
    is_coupled = bool(call.number("input_forget", 0))

    def begin(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
        step = _lstm_step if group.peepholes is None else _lstm_peephole_step
        weights = group.transposed(group.recurrence)
        return _projected(group, _bias_sum(group)), partial(
            step, group, functions, weights, is_coupled
        )

    return _run(
        call, layer, functions_of(call, ("Sigmoid", "Tanh", "Tanh"), layer.directions), begin
    )


def _lstm_step(
    group: Layer, functions: Sequence[Function], weights: Tensor, is_coupled: bool,
    x: Tensor, state: _State,
) -> _State:  # fmt: skip
    builder, (hidden, cell) = group.builder, state
    gates = builder.add(x, builder.matmul(hidden, weights))
    three = activated(group, functions[0], group.gates(gates, 0, 3))
    entry, exit_ = group.gates(three, 0, 1), group.gates(three, 1, 2)
    forget = builder.sub(1, entry) if is_coupled else group.gates(three, 2, 3)
    new = activated(group, functions[1], group.gates(gates, 3, 4))
    cell = builder.add(builder.mul(forget, cell), builder.mul(entry, new))
    return builder.mul(exit_, activated(group, functions[2], cell)), cell


def _lstm_peephole_step(
    group: Layer, functions: Sequence[Function], weights: Tensor, is_coupled: bool,
    x: Tensor, state: _State,
) -> _State:  # fmt: skip
    builder, (hidden, cell) = group.builder, state
    assert group.peepholes is not None  # noqa: S101  # the step of those that have them
    seen = group.spread(group.peepholes)

    def gate(number: int, looks_at: Tensor) -> Tensor:
        part = builder.mul(group.gates(seen, number, number + 1), looks_at)
        whole = builder.add(group.gates(gates, number, number + 1), part)
        return activated(group, functions[0], whole)

    gates = builder.add(x, builder.matmul(hidden, weights))
    entry = gate(0, cell)
    forget = builder.sub(1, entry) if is_coupled else gate(2, cell)
    new = activated(group, functions[1], group.gates(gates, 3, 4))
    cell = builder.add(builder.mul(forget, cell), builder.mul(entry, new))
    return builder.mul(gate(1, cell), activated(group, functions[2], cell)), cell


def _bias_sum(group: Layer) -> Tensor | None:
    if group.bias is None:
        return None
    builder, half = group.builder, group.bias.shape[1] // 2
    own = moves.slice_axis(builder, group.bias, 1, 0, half)
    other = moves.slice_axis(builder, group.bias, 1, half, 2 * half)
    return group.spread(builder.add(own, other))


def _projected(group: Layer, bias: Tensor | None) -> Tensor:
    # (direction, time * batch, gates) of all steps
    made = group.builder.matmul(group.inputs(), group.transposed(group.weights))
    return made if bias is None else group.builder.add(made, bias)


def _run(
    call: Call,
    layer: Layer,
    functions: Sequence[Sequence[Function]],
    begin: Callable[[Layer, Sequence[Function]], tuple[Tensor, _Step]],
) -> Result:
    same = all(each == functions[0] for each in functions)
    numbers = [range(layer.directions)] if same else [range(n, n + 1) for n in range(2)]
    outputs, finals = [], []
    for each in numbers:
        group = layer.group(each.start, each.stop)
        y, state = _unrolled(group, *begin(group, functions[each.start]), wanted=call.wants(0))
        outputs.append(y)
        finals.append(state)
    builder = layer.builder
    ends = [layer.as_output(moves.concat(builder, parts, 0)) for parts in zip(*finals, strict=True)]
    whole = [each for each in outputs if each is not None]
    # nobody reads a first output that is not wanted
    y = layer.as_output(moves.concat(builder, whole, 1)) if whole else None
    return (y, *ends)


def _unrolled(
    group: Layer, projected: Tensor, step: _Step, *, wanted: bool
) -> tuple[Tensor | None, _State]:
    builder, shape = group.builder, (group.directions, group.batch, group.hidden)
    wide = projected.shape[2]
    rows = group.batch * wide
    active = group.active()
    state, collected = group.initial, []
    for number in range(group.steps):
        x = builder.view(
            projected, (*shape[:2], wide), (group.steps * rows, wide, 1), number * rows
        )
        after = step(x, state)
        shown = after[0]
        if active is not None:
            goes_on = builder.view(active, shape, (0, 1, 0), number * group.batch)
            shown = builder.select(goes_on, shown, 0)
            after = tuple(
                builder.select(goes_on, new, old) for new, old in zip(after, state, strict=True)
            )
        state = after
        collected.append(shown)
    return (_collected(group, collected) if wanted else None), state


def _collected(group: Layer, parts: Sequence[Tensor]) -> Tensor:
    # (time, direction, batch, hidden), the steps of a backward direction in their order
    builder = group.builder
    shape = (group.steps, group.directions, group.batch, group.hidden)
    if not parts:
        return builder.emit(
            Operator.RASTER, group.x, regions=(), shape=shape, dtype=group.x.dtype, fill=0
        )
    regions, rows = [], group.batch * group.hidden
    for number in range(group.steps):
        for direction, is_backward in enumerate(group.backward):
            at = group.steps - 1 - number if is_backward and group.lengths is None else number
            target = View((at * group.directions + direction) * rows, (1,))
            regions.append(Region((rows,), View(direction * rows, (1,)), target, number))
    made = builder.raster(parts, shape, regions)
    if group.lengths is None or not any(group.backward):
        return made
    lines = [
        moves.slice_axis(builder, made, 1, number, number + 1) for number in range(group.directions)
    ]
    return moves.concat(
        builder,
        [
            group.reversed_in_time(line) if is_backward else line
            for line, is_backward in zip(lines, group.backward, strict=True)
        ],
        1,
    )
