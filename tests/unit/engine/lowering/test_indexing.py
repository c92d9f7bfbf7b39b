import itertools

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

RNG = np.random.default_rng(7)


def run(operator, *inputs, version=28, known=(), backend=None, **attributes):
    names = tuple(f"x{number}" for number in range(len(inputs)))
    given = dict(zip(names, inputs, strict=True))
    constants = {names[number]: given.pop(names[number]) for number in known}
    node = Node(operator, names, ("y",), attributes, version=version)
    graph = Graph("test", dict.fromkeys(given), {"y": None}, (node,), constants)
    return GraphRunner(graph, {}, backend or Interpreter()).run(given)[0]


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("known", [(), (1,), (0, 1)])
def test_gather_is_take(axis, known):
    x, places = floats(3, 4, 5), np.array([[0, -1], [2, -3]])
    assert np.array_equal(
        run("Gather", x, places, axis=axis, known=known), np.take(x, places, axis)
    )


@pytest.mark.parametrize("places", [[1, 2, 3], [3, 2, 1], [0, 2], [1, 1, 1], [2], [0, 1, 3]])
def test_gather_at_known_places_in_a_row_is_the_same_as_at_any(places):
    x = floats(2, 4, 3)
    places = np.array(places)
    assert np.array_equal(run("Gather", x, places, axis=1, known=(1,)), x[:, places])


def test_gather_by_a_scalar_drops_the_axis():
    x = floats(3, 4)
    assert np.array_equal(run("Gather", x, np.array(-2, np.int32), axis=1), x[:, -2])


@pytest.mark.parametrize("bad", [3, -4, 2**40])
@pytest.mark.parametrize("known", [(), (1,)])
@pytest.mark.parametrize("backend", [Interpreter, NumpyBackend])
def test_gather_refuses_an_index_out_of_range(bad, known, backend):
    with pytest.raises(EngineError, match=r"node 'y'.* is not in 0 \.\. 2"):
        run("Gather", floats(3, 2), np.array([0, bad]), known=known, backend=backend())


def test_gather_of_nothing():
    assert run("Gather", floats(3, 0), np.array([0, 1])).shape == (2, 0)
    assert run("Gather", floats(0, 2), np.zeros((0, 4), np.int64)).shape == (0, 4, 2)
    with pytest.raises(EngineError):
        run("Gather", floats(0, 2), np.array([0]))


def test_gather_takes_text_and_refuses_floating_indices():
    x = np.array(["a", "b", "c"], object)
    assert run("Gather", x, np.array([2, 0])).tolist() == ["c", "a"]
    with pytest.raises(DTypeError, match="whole numbers, not float32"):
        run("Gather", floats(3), np.array([0.0], np.float32))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements_takes_along_an_axis(axis):
    x = floats(3, 4, 5)
    places = RNG.integers(-3, 3, (2, 3, 4))
    expected = np.empty(places.shape, np.float32)
    for at in np.ndindex(places.shape):
        source = list(at)
        source[axis] = places[at]
        expected[at] = x[tuple(source)]
    assert np.array_equal(run("GatherElements", x, places, axis=axis), expected)


def test_gather_elements_does_not_reach_into_the_next_row():
    with pytest.raises(EngineError, match=r"index 3 is not in 0 \.\. 2"):
        run("GatherElements", floats(2, 3), np.array([[0, 3], [0, 0]]), axis=1)


def test_gather_elements_refuses_wider_indices():
    with pytest.raises(ShapeError, match=r"indices \[3, 2\] of data \[2, 3\]"):
        run("GatherElements", floats(2, 3), np.zeros((3, 2), np.int64), axis=1)


@pytest.mark.parametrize(("shared", "depth"), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1)])
def test_gather_nd_takes_by_tuples(shared, depth):
    x = floats(2, 3, 4, 5)
    shape = (*x.shape[:shared], 3, 2, depth)
    places = RNG.integers(-2, 2, shape)
    expected = np.empty((*shape[:-1], *x.shape[shared + depth :]), np.float32)
    for at in np.ndindex(shape[:-1]):
        expected[at] = x[(*at[:shared], *places[at])]
    assert np.array_equal(run("GatherND", x, places, batch_dims=shared), expected)


def test_gather_nd_refuses_a_coordinate_out_of_range_and_too_many():
    with pytest.raises(EngineError, match=r"index 4 is not in 0 \.\. 3"):
        run("GatherND", floats(3, 4), np.array([[0, 4]]))
    with pytest.raises(ShapeError):
        run("GatherND", floats(3, 4), np.zeros((1, 3), np.int64))
    with pytest.raises(ShapeError, match="share no 1 axes"):
        run("GatherND", floats(3, 4), np.zeros((2, 1), np.int64), batch_dims=1)


REDUCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_scatter_elements_combines_in_order(reduction, axis, dtype):
    x = RNG.integers(-4, 5, (3, 4)).astype(dtype)
    places = np.array([[0, 0, -1], [1, 2, 1]])
    updates = RNG.integers(-4, 5, places.shape).astype(dtype)
    expected = x.copy()
    for at in np.ndindex(places.shape):
        target = list(at)
        target[axis] = places[at]
        target = tuple(target)
        combine = REDUCTIONS[reduction]
        expected[target] = (
            updates[at] if combine is None else combine(expected[target], updates[at])
        )
    made = run("ScatterElements", x, places, updates, axis=axis, reduction=reduction.encode())
    assert np.array_equal(made, expected)
    assert made.dtype == dtype


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd_combines_rows(reduction, depth):
    x = floats(3, 4, 2)
    places = RNG.integers(-2, 2, (5, depth))
    updates = floats(5, *x.shape[depth:])
    expected = x.copy()
    for place, update in zip(places, updates, strict=True):
        combine = REDUCTIONS[reduction]
        old = expected[tuple(place)]
        expected[tuple(place)] = update if combine is None else combine(old, update)
    made = run("ScatterND", x, places, updates, reduction=reduction.encode())
    assert np.allclose(made, expected)


@pytest.mark.parametrize("bad", [-4, 3])
@pytest.mark.parametrize("operator", ["Scatter", "ScatterElements", "ScatterND"])
@pytest.mark.parametrize("backend", [Interpreter, NumpyBackend])
def test_scatter_refuses_an_index_out_of_range(bad, operator, backend):
    given = floats(3, 1), np.array([[bad]]), floats(1, 1)
    with pytest.raises(EngineError, match=r"is not in 0 \.\. 2"):
        run(operator, *given, version=9, backend=backend())


def test_scatter_refuses_other_updates_and_reductions():
    places = np.array([[0]])
    with pytest.raises(ShapeError, match=r"updates \[2, 1\]"):
        run("ScatterElements", floats(3, 1), places, floats(2, 1))
    with pytest.raises(LoweringError, match="'reduction' is 'mean'"):
        run("ScatterElements", floats(3, 1), places, floats(1, 1), reduction=b"mean")
    with pytest.raises(DTypeError, match="float64 for data of float32"):
        run("ScatterElements", floats(3, 1), places, np.ones((1, 1)))
    with pytest.raises(ShapeError, match="updates"):
        run("ScatterND", floats(3, 2), places, floats(1, 3))


def test_scatter_of_nothing_leaves_the_data():
    x = floats(3, 2)
    empty = np.zeros((0, 2), np.int64)
    assert np.array_equal(run("ScatterElements", x, empty, floats(0, 2)), x)
    assert np.array_equal(run("ScatterND", x, empty, floats(0)), x)


@pytest.mark.parametrize("mode", [b"linear", b"circular"])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_tensor_scatter_writes_behind_each_index(mode, axis):
    past = floats(2, 4, 4, 4)
    shape = list(past.shape)
    shape[axis] = 2
    update, at = floats(*shape), np.array([2, 1 if mode == b"linear" else 3])
    expected = past.copy()
    for batch, step in itertools.product(range(2), range(2)):
        target = [batch, slice(None), slice(None), slice(None)]
        source = list(target)
        target[axis], source[axis] = (at[batch] + step) % 4, step
        expected[tuple(target)] = update[tuple(source)]
    assert np.array_equal(run("TensorScatter", past, update, at, axis=axis, mode=mode), expected)


def test_tensor_scatter_refuses_to_write_behind_the_end():
    past, update = floats(1, 3, 2), floats(1, 2, 2)
    with pytest.raises(EngineError, match=r"index 3 is not in 0 \.\. 2"):
        run("TensorScatter", past, update, np.array([2]))
    with pytest.raises(LoweringError, match="along axis 0"):
        run("TensorScatter", past, update, np.array([0]), axis=0)
    assert np.array_equal(run("TensorScatter", past, update)[:, :2], update)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_marks_what_is_in_range(axis):
    places = np.array([[0, -1, 3], [4, -5, 2]])
    made = run("OneHot", places, np.array([4]), np.array([5, 9]), axis=axis)
    wrapped = np.where(places < 0, places + 4, places)
    marks = np.moveaxis(wrapped[..., None] == np.arange(4), -1, axis)
    assert np.array_equal(made, np.where(marks, 9, 5))


def test_one_hot_takes_floating_indices_and_depths():
    made = run("OneHot", np.array([1.0], np.float32), np.array(2.0), np.array([0.0, 1.0]))
    assert made.tolist() == [[0, 1]]
    with pytest.raises(ShapeError, match="depth"):
        run("OneHot", np.array([1]), np.array(-1), np.array([0, 1]))


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("known", [(), (0, 1)])
def test_compress_keeps_what_is_true(axis, known):
    x, kept = floats(3, 4), np.array([True, False, True])
    attributes = {} if axis is None else {"axis": axis}
    made = run("Compress", x, kept, known=known, **attributes)
    assert np.array_equal(made, np.compress(kept, x, axis))


def test_compress_refuses_longer_conditions():
    with pytest.raises(ShapeError, match="for 2 slices"):
        run("Compress", floats(2, 3), np.ones(3, bool), axis=0)
    assert run("Compress", floats(2, 3), np.zeros(3, bool), axis=1).shape == (2, 0)


def test_reverse_sequence_turns_the_beginning_of_each_row():
    x, lengths = floats(3, 4, 2), np.array([0, 1, 4])
    expected = x.copy()
    for row, length in enumerate(lengths):
        expected[row, :length] = x[row, :length][::-1]
    made = run("ReverseSequence", x, lengths, batch_axis=0, time_axis=1)
    assert np.array_equal(made, expected)


def test_reverse_sequence_refuses_longer_rows_and_one_axis():
    with pytest.raises(EngineError, match=r"index 4 is not in 0 \.\. 3"):
        run("ReverseSequence", floats(4, 2), np.array([5, 1]))
    with pytest.raises(ShapeError, match="the same axis"):
        run("ReverseSequence", floats(4, 2), np.array([1, 1]), time_axis=1)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-7, -1, 0, 2, 7])
@pytest.mark.parametrize("known", [(), (1,)])
def test_trilu_keeps_a_triangle(upper, k, known):
    x = RNG.integers(1, 9, (2, 3, 4))
    expected = (np.triu if upper else np.tril)(x, k)
    assert np.array_equal(run("Trilu", x, np.array(k), upper=upper, known=known), expected)


def test_trilu_keeps_not_what_multiplies_to_nothing():
    assert run("Trilu", np.full((2, 2), np.nan)).tolist()[1][0] == 0
    with pytest.raises(ShapeError, match="no matrix"):
        run("Trilu", floats(3))
