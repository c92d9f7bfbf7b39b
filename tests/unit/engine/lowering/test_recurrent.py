import itertools

import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

RNG = np.random.default_rng(9)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 2


def run(operator, *inputs, version=22, outputs=3, **attributes):
    names = tuple("" if each is None else f"x{at}" for at, each in enumerate(inputs))
    given = {name: each for name, each in zip(names, inputs, strict=True) if name}
    made = tuple(f"y{number}" for number in range(outputs if operator == "LSTM" else 2))
    node = Node(operator, names, made, attributes, version=version)
    graph = Graph("test", dict.fromkeys(given), dict.fromkeys(made), (node,))
    return GraphRunner(graph, {}, Interpreter()).run(given)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Cell:
    """The equations of the operators' texts for one direction, row by row."""

    def __init__(self, operator, w, r, b, p, **how):
        size = r.shape[1]
        b = np.zeros(2 * len(w)) if b is None else b
        split = [GATES[operator]] * 2
        self.w, self.r = (each.reshape(split[0], size, -1) for each in (w, r))
        self.wb, self.rb = b.reshape(2, split[0], size)
        self.p = np.zeros((3, size)) if p is None else p.reshape(3, size)
        self.how = how
        self.step = getattr(self, operator.lower())

    def clipped(self, x):
        limit = self.how.get("clip")
        return x if limit is None else np.clip(x, -limit, limit)

    def gate(self, number, x, h):
        return self.w[number] @ x + self.r[number] @ h + self.wb[number] + self.rb[number]

    def rnn(self, x, h, c):
        return np.tanh(self.clipped(self.gate(0, x, h))), c

    def gru(self, x, h, c):
        z, r = (sigmoid(self.clipped(self.gate(number, x, h))) for number in (0, 1))
        if self.how.get("linear_before_reset"):
            inner = r * (self.r[2] @ h + self.rb[2])
        else:
            inner = self.r[2] @ (r * h) + self.rb[2]
        n = np.tanh(self.clipped(self.w[2] @ x + inner + self.wb[2]))
        return (1 - z) * n + z * h, c

    def lstm(self, x, h, c):
        i = sigmoid(self.clipped(self.gate(0, x, h) + self.p[0] * c))
        f = sigmoid(self.clipped(self.gate(2, x, h) + self.p[2] * c))
        f = 1 - i if self.how.get("input_forget") else f
        c = f * c + i * np.tanh(self.clipped(self.gate(3, x, h)))
        o = sigmoid(self.clipped(self.gate(1, x, h) + self.p[1] * c))
        return o * np.tanh(self.clipped(c)), c


def expected(operator, given, backward, **how):
    x, w, r, b, lengths, h0, c0, p = given
    lengths = [len(x)] * x.shape[1] if lengths is None else lengths
    y = np.zeros((len(x), len(w), x.shape[1], r.shape[2]))
    ends = np.array([h0, c0])
    for d, row in itertools.product(range(len(w)), range(x.shape[1])):
        cell = Cell(operator, w[d], r[d], *(None if e is None else e[d] for e in (b, p)), **how)
        steps = range(lengths[row])
        for step in reversed(steps) if backward[d] else steps:
            ends[:, d, row] = cell.step(x[step, row], *ends[:, d, row])
            y[step, d, row] = ends[0, d, row]
    return y, *ends[: 2 if operator == "LSTM" else 1]


def parameters(operator, directions, *, bias=True, peepholes=False):
    gates = GATES[operator] * HIDDEN
    draw = RNG.standard_normal
    return (
        draw((STEPS, BATCH, FEATURES)),
        draw((directions, gates, FEATURES)),
        draw((directions, gates, HIDDEN)),
        draw((directions, 2 * gates)) if bias else None,
        None,
        draw((directions, BATCH, HIDDEN)),
        draw((directions, BATCH, HIDDEN)),
        draw((directions, 3 * HIDDEN)) if peepholes else None,
    )


def inputs_of(operator, given):
    return given if operator == "LSTM" else given[:6]


DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", [None, [5, 2, 0]])
@pytest.mark.parametrize("layout", [0, 1])
def test_directions_lengths_and_layouts(operator, direction, lengths, layout):
    backward = DIRECTIONS[direction]
    given = list(parameters(operator, len(backward)))
    given[4] = None if lengths is None else np.array(lengths, np.int32)
    wanted = expected(operator, given, backward)
    if layout:
        for number in (0, 5, 6):
            given[number] = given[number].swapaxes(0, 1)
        wanted = (wanted[0].transpose(2, 0, 1, 3), *(each.swapaxes(0, 1) for each in wanted[1:]))
    made = run(operator, *inputs_of(operator, given), direction=direction.encode(), layout=layout)
    for mine, its in zip(made, wanted, strict=True):
        assert np.allclose(mine, its)


HOW = [
    ("GRU", {"linear_before_reset": 1}), ("GRU", {"clip": 0.5}), ("RNN", {"clip": 0.3}),
    ("LSTM", {"input_forget": 1}), ("LSTM", {"clip": 0.4}),
    ("GRU", {"linear_before_reset": 1, "clip": 0.7}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "how"), HOW)
@pytest.mark.parametrize("bias", [False, True])
def test_variants_of_the_cells(operator, how, bias):
    given = parameters(operator, 1, bias=bias)
    made = run(operator, *inputs_of(operator, given), **how)
    for mine, its in zip(made, expected(operator, given, (False,), **how), strict=True):
        assert np.allclose(mine, its)


@pytest.mark.parametrize("how", [{}, {"input_forget": 1}, {"clip": 0.6}])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_peepholes_look_at_the_cell(how, direction):
    backward = DIRECTIONS[direction]
    given = parameters("LSTM", len(backward), peepholes=True)
    made = run("LSTM", *given, direction=direction.encode(), **how)
    for mine, its in zip(made, expected("LSTM", given, backward, **how), strict=True):
        assert np.allclose(mine, its)


def test_directions_may_have_other_functions():
    given = parameters("RNN", 2)
    both = run("RNN", *given[:6], direction=b"bidirectional", activations=(b"Tanh", b"relu"))
    for number, (direction, name) in enumerate(((b"forward", b"Tanh"), (b"reverse", b"Relu"))):
        part = [given[0], *(None if e is None else e[number : number + 1] for e in given[1:6])]
        alone = run("RNN", *part, direction=direction, activations=(name,))
        assert np.allclose(both[0][:, number], alone[0][:, 0])
        assert np.allclose(both[1][number], alone[1][0])


def test_initial_states_and_first_output_may_be_left_out():
    given = parameters("LSTM", 1)[:3]
    zero = np.zeros((1, BATCH, HIDDEN))
    whole = run("LSTM", *given, None, None, zero, zero)
    assert all(np.array_equal(a, b) for a, b in zip(run("LSTM", *given), whole, strict=True))
    node = Node("LSTM", ("x", "w", "r"), ("", "h"), version=7)
    graph = Graph("test", dict.fromkeys("xwr"), {"h": None}, (node,))
    made = GraphRunner(graph, {}, Interpreter()).run(dict(zip("xwr", given, strict=True)))
    assert np.array_equal(made[0], whole[1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_computed_in_float32(dtype):
    given = [None if each is None else each.astype(dtype) for each in parameters("GRU", 1)]
    wide = [None if each is None else each.astype(np.float32) for each in given]
    made = run("GRU", *given[:6])
    for mine, its in zip(made, run("GRU", *wide[:6]), strict=True):
        assert mine.dtype == dtype
        assert np.array_equal(mine, its.astype(dtype))


@pytest.mark.parametrize("operator", GATES)
def test_no_steps_and_no_rows(operator):
    given = list(inputs_of(operator, parameters(operator, 1)))
    y, h = run(operator, given[0][:0], *given[1:])[:2]
    assert y.shape == (0, 1, BATCH, HIDDEN)
    assert np.array_equal(h, given[5])
    y, h = run(operator, given[0][:, :0], *given[1:3])[:2]
    assert (y.shape, h.shape) == ((STEPS, 1, 0, HIDDEN), (1, 0, HIDDEN))


def test_a_long_sequence_is_lowered_in_seconds():
    given = parameters("LSTM", 1)
    x = RNG.standard_normal((1000, 1, FEATURES))
    assert run("LSTM", x, *given[1:3])[0].shape == (1000, 1, 1, HIDDEN)


def test_other_shapes_are_refused():
    given = parameters("GRU", 1)[:3]
    with pytest.raises(ShapeError, match=r"input 1 has shape \[1, 6, 4\], not \[2, 6, 4\]"):
        run("GRU", *given, direction=b"bidirectional")
    with pytest.raises(ShapeError, match="2 hidden elements, not 3"):
        run("GRU", *given, hidden_size=3)
    with pytest.raises(ShapeError, match="input 3 has shape"):
        run("GRU", *given, np.zeros((1, 6)))
    with pytest.raises(ShapeError, match="for 3 rows"):
        run("GRU", *given, None, np.zeros(2, np.int32))
    with pytest.raises(DTypeError, match="input 1 is of float64, not float32"):
        run("GRU", given[0].astype(np.float32), *given[1:])


def test_other_attributes_are_refused():
    given = parameters("GRU", 1)[:3]
    with pytest.raises(LoweringError, match="'sideways' or layout 0 is unknown"):
        run("GRU", *given, direction=b"sideways")
    with pytest.raises(LoweringError, match="not 2 names"):
        run("GRU", *given, activations=(b"Tanh",))
    with pytest.raises(LoweringError, match="no activation 'Step'"):
        run("GRU", *given, activations=(b"Tanh", b"Step"))
    with pytest.raises(LoweringError, match="'activation_alpha' must be numbers"):
        run("GRU", *given, activation_alpha=b"x")


def test_a_row_longer_than_the_sequence_is_refused_backward():
    given = parameters("GRU", 1)[:3]
    with pytest.raises(EngineError, match=r"index 5 is not in 0 \.\. 4"):
        run("GRU", *given, None, np.array([6, 1, 1], np.int32), direction=b"reverse")


def test_parameters_go_to_the_functions_that_have_some():
    given = parameters("LSTM", 1)[:3]
    made = run(
        "LSTM", *given, activations=(b"HardSigmoid", b"Tanh", b"Affine"),
        activation_alpha=(0.3, 2.0), activation_beta=(0.4, 1.0),
    )  # fmt: skip
    cell = Cell("LSTM", given[1][0], given[2][0], None, None)
    h = c = np.zeros(HIDDEN)
    for x in given[0][:, 0]:
        i, o, f = (np.clip(0.3 * cell.gate(number, x, h) + 0.4, 0, 1) for number in range(3))
        c = f * c + i * np.tanh(cell.gate(3, x, h))
        h = o * (2 * c + 1)
    assert np.allclose(made[1][0, 0], h)
