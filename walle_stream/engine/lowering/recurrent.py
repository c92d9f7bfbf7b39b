"""RNN, GRU and LSTM, unrolled over time.

One product computes the projections of the input for all steps. If both directions have the same
functions, each step runs them in one product; the backward direction reads its input reversed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.recurrent_layer import (
    Function,
    Layer,
    activated,
    functions_of,
    layer_of,
)
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, View
from walle_stream.errors import ShapeError

type _State = tuple[Tensor, ...]
type _Step = Callable[[Tensor, _State], _State]
"""Takes the projected input of the gates and the previous states; returns the next states."""
type _Gate = Callable[[int, Tensor], Tensor]
"""Takes the number of a gate and the cell that it reads."""


@lowers("RNN")
def _rnn(call: Call) -> Result:
    layer = layer_of(call, gates=1, states=1)

    def begin(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
        builder, weights = group.builder, group.transposed(group.recurrence)

        def step(x: Tensor, state: _State) -> _State:
            total = builder.add(x, builder.matmul(state[0], weights))
            return (activated(group, functions[0], total),)

        return _projected(group, _bias_sum(group)), step

    return _run(call, layer, functions_of(call, ("Tanh",), layer.directions), begin)


@lowers("GRU")
def _gru(call: Call) -> Result:
    layer = layer_of(call, gates=3, states=1)
    begin = _begin_linear_gru if call.number("linear_before_reset", 0) else _begin_gru
    return _run(call, layer, functions_of(call, ("Sigmoid", "Tanh"), layer.directions), begin)


def _begin_gru(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
    builder, weights = group.builder, group.transposed(group.recurrence)
    of_gates, of_hidden = group.gates(weights, 0, 2), group.gates(weights, 2, 3)

    def step(x: Tensor, state: _State) -> _State:
        (before,) = state
        both = builder.add(group.gates(x, 0, 2), builder.matmul(before, of_gates))
        both = activated(group, functions[0], both)
        reset = builder.mul(group.gates(both, 1, 2), before)
        hidden = builder.add(group.gates(x, 2, 3), builder.matmul(reset, of_hidden))
        return (_mixed(group, both, activated(group, functions[1], hidden), before),)

    return _projected(group, _bias_sum(group)), step


def _begin_linear_gru(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
    builder, weights = group.builder, group.transposed(group.recurrence)
    bias, inner = None, None
    if group.bias is not None:
        # the reset gate also scales the recurrent bias of the hidden gate
        own, other = group.gates(group.bias, 0, 3), group.gates(group.bias, 3, 6)
        outer = moves.pad(builder, group.gates(other, 0, 2), (0, 0), (0, group.hidden))
        bias = group.spread(builder.add(own, outer))
        inner = group.spread(group.gates(other, 2, 3))

    def step(x: Tensor, state: _State) -> _State:
        (before,) = state
        product = builder.matmul(before, weights)
        both = builder.add(group.gates(x, 0, 2), group.gates(product, 0, 2))
        both = activated(group, functions[0], both)
        hidden = group.gates(product, 2, 3)
        hidden = hidden if inner is None else builder.add(hidden, inner)
        hidden = builder.add(group.gates(x, 2, 3), builder.mul(group.gates(both, 1, 2), hidden))
        return (_mixed(group, both, activated(group, functions[1], hidden), before),)

    return _projected(group, bias), step


def _mixed(group: Layer, gates: Tensor, hidden: Tensor, before: Tensor) -> Tensor:
    builder, update = group.builder, group.gates(gates, 0, 1)
    return builder.add(builder.mul(builder.sub(1, update), hidden), builder.mul(update, before))


@lowers("LSTM")
def _lstm(call: Call) -> Result:
    return _run_lstm(call, layer_of(call, gates=4, states=2))


@lowers("DynamicQuantizeLSTM", domain="com.microsoft")
def _dynamic_lstm(call: Call) -> Result:
    # the weights are transposed; their scales and zero points are behind the inputs of LSTM
    (w, of_w), (r, of_r) = (_centred(call, number, scale) for number, scale in ((1, 8), (2, 10)))
    plain = replace(call, inputs=(*call.inputs[:1], w, r, *call.inputs[3:8]))
    return _run_lstm(plain, replace(layer_of(plain, gates=4, states=2), scales=(of_w, of_r)))


def _centred(call: Call, number: int, scale: int) -> tuple[Tensor, Tensor]:
    # weights in whole steps, and the steps
    builder, x, zero = call.builder, call.tensor(number), call.tensor(scale + 1)
    if x.rank != 3 or x.dtype.itemsize != 1 or zero.dtype != x.dtype:  # noqa: PLR2004  # as the operator requires
        raise ShapeError(f"weights {x} with a zero point {zero}")

    def spread(of: Tensor) -> Tensor:
        # one number for each direction, or for each of its columns
        shape = (x.shape[0], 1, of.size // max(x.shape[0], 1))
        return builder.cast(builder.reshape(of, shape), call.tensor(0).dtype)

    steps = builder.sub(builder.cast(x, call.tensor(0).dtype), spread(zero))
    return moves.transpose(builder, steps, (0, 2, 1)), spread(call.tensor(scale))


def _run_lstm(call: Call, layer: Layer) -> Result:
    is_coupled = bool(call.number("input_forget", 0))

    def begin(group: Layer, functions: Sequence[Function]) -> tuple[Tensor, _Step]:
        gates_of = _plain_gates if group.peepholes is None else _peephole_gates
        builder, weights = group.builder, group.transposed(group.recurrence)

        def step(x: Tensor, state: _State) -> _State:
            hidden, cell = state
            gates = builder.add(x, group.product(hidden, weights, 1))
            gate = gates_of(group, functions[0], gates)
            entry = gate(0, cell)
            forget = builder.sub(1, entry) if is_coupled else gate(2, cell)
            new = activated(group, functions[1], group.gates(gates, 3, 4))
            cell = builder.add(builder.mul(forget, cell), builder.mul(entry, new))
            return builder.mul(gate(1, cell), activated(group, functions[2], cell)), cell

        return _projected(group, _bias_sum(group)), step

    functions = functions_of(call, ("Sigmoid", "Tanh", "Tanh"), layer.directions)
    return _run(call, layer, functions, begin)


def _plain_gates(group: Layer, function: Function, gates: Tensor) -> _Gate:
    three = activated(group, function, group.gates(gates, 0, 3))
    return lambda number, _cell: group.gates(three, number, number + 1)


def _peephole_gates(group: Layer, function: Function, gates: Tensor) -> _Gate:
    builder = group.builder
    assert group.peepholes is not None  # noqa: S101  # only for layers with peepholes
    weights = group.spread(group.peepholes)

    def gate(number: int, cell: Tensor) -> Tensor:
        part = builder.mul(group.gates(weights, number, number + 1), cell)
        whole = builder.add(group.gates(gates, number, number + 1), part)
        return activated(group, function, whole)

    return gate


def _bias_sum(group: Layer) -> Tensor | None:
    if group.bias is None:
        return None
    builder, half = group.builder, group.bias.shape[1] // 2
    own = moves.slice_axis(builder, group.bias, 1, 0, half)
    other = moves.slice_axis(builder, group.bias, 1, half, 2 * half)
    return group.spread(builder.add(own, other))


def _projected(group: Layer, bias: Tensor | None) -> Tensor:
    # (direction, time * batch, gates) for all steps
    result = group.product(group.inputs(), group.transposed(group.weights), 0)
    return result if bias is None else group.builder.add(result, bias)


def _run(
    call: Call,
    layer: Layer,
    functions: Sequence[Sequence[Function]],
    begin: Callable[[Layer, Sequence[Function]], tuple[Tensor, _Step]],
) -> Result:
    same = all(function == functions[0] for function in functions)
    numbers = [range(layer.directions)] if same else [range(n, n + 1) for n in range(2)]
    outputs, finals = [], []
    for span in numbers:
        group = layer.group(span.start, span.stop)
        y, state = _unrolled(group, *begin(group, functions[span.start]), wanted=call.wants(0))
        outputs.append(y)
        finals.append(state)
    builder = layer.builder
    ends = [layer.as_output(moves.concat(builder, parts, 0)) for parts in zip(*finals, strict=True)]
    whole = [output for output in outputs if output is not None]
    # an unwanted first output has no reader
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
    # (time, direction, batch, hidden), with the steps of a backward direction in order of time
    builder = group.builder
    shape = (group.steps, group.directions, group.batch, group.hidden)
    if not parts:
        return builder.raster([group.x], shape, [])
    regions, rows = [], group.batch * group.hidden
    for number in range(group.steps):
        for direction, is_backward in enumerate(group.backward):
            at = group.steps - 1 - number if is_backward and group.lengths is None else number
            target = View((at * group.directions + direction) * rows, (1,))
            regions.append(Region((rows,), View(direction * rows, (1,)), target, number))
    result = builder.raster(parts, shape, regions)
    if group.lengths is None or not any(group.backward):
        return result
    lines = moves.unjoined(builder, result, 1)
    return moves.concat(
        builder,
        [
            group.reversed_in_time(line) if is_backward else line
            for line, is_backward in zip(lines, group.backward, strict=True)
        ],
        1,
    )
