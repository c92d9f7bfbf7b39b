import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.moves import concat
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, LoweringError, ShapeError


def run(operator, *inputs, version=28, **attributes):
    names = tuple(f"x{number}" for number in range(len(inputs)))
    node = Node(operator, names, ("y",), attributes, version=version)
    graph = Graph("test", dict.fromkeys(names), {"y": None}, (node,))
    return GraphRunner(graph, {}, Interpreter()).run(dict(zip(names, inputs, strict=True)))[0]


def some(count):
    return [np.full((2,), number, np.float32) for number in range(count)]


def numbers(sequence):
    return [int(each[0]) for each in sequence]


def test_construct_and_empty():
    assert numbers(run("SequenceConstruct", *some(3))) == [0, 1, 2]
    assert run("SequenceEmpty") == []
    with pytest.raises(DTypeError, match="must have one dtype"):
        run("SequenceConstruct", np.zeros(1), np.zeros(1, np.int64))


@pytest.mark.parametrize("place", [-3, -1, 0, 2])
def test_at_and_erase_count_from_both_ends(place):
    expected = list(range(3))
    assert numbers([run("SequenceAt", some(3), np.array(place))]) == [expected[place]]
    del expected[place]
    assert numbers(run("SequenceErase", some(3), np.array(place))) == expected


def test_erase_takes_the_last_by_default():
    assert numbers(run("SequenceErase", some(3))) == [0, 1]
    with pytest.raises(ShapeError, match="empty sequence"):
        run("SequenceErase", [])


@pytest.mark.parametrize("place", [-3, -1, 0, 2, 3])
def test_insert_puts_in_front_of_the_place(place):
    expected = list(range(3))
    expected.insert(place, 9)
    made = run("SequenceInsert", some(3), np.full((2,), 9, np.float32), np.array(place))
    assert numbers(made) == expected


@pytest.mark.parametrize("operator", ["SequenceAt", "SequenceErase"])
@pytest.mark.parametrize("place", [-4, 3])
def test_a_place_out_of_range_is_refused(operator, place):
    with pytest.raises(ShapeError, match=f"position {place} in a sequence of 3"):
        run(operator, some(3), np.array(place))


def test_insert_refuses_places_and_dtypes():
    with pytest.raises(ShapeError, match="position 4 in a sequence of 3"):
        run("SequenceInsert", some(3), some(1)[0], np.array(4))
    with pytest.raises(DTypeError, match="float64 for a sequence of float32"):
        run("SequenceInsert", some(3), np.zeros(2))


def test_length():
    assert run("SequenceLength", some(3)) == 3
    assert run("SequenceLength", []) == 0
    with pytest.raises(LoweringError, match="not a sequence"):
        run("SequenceLength", np.zeros(3))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_in_ones_in_equals_and_by_sizes(axis):
    x = np.arange(25.0).reshape(5, 5)
    ones = run("SplitToSequence", x, axis=axis, keepdims=0)
    assert np.array_equal(np.stack(ones, axis), x)
    assert [each.shape[axis] for each in run("SplitToSequence", x, np.array(2), axis=axis)] == [
        2,
        2,
        1,
    ]
    parts = run("SplitToSequence", x, np.array([1, 0, 4]), axis=axis, keepdims=0)
    assert [each.shape[axis] for each in parts] == [1, 0, 4]
    assert np.array_equal(np.concatenate(parts, axis), x)


def test_split_refuses_sizes_that_do_not_add_up():
    with pytest.raises(ShapeError, match=r"\[2, 2\] of 5"):
        run("SplitToSequence", np.zeros(5), np.array([2, 2]))
    with pytest.raises(ShapeError, match="parts of 0 elements"):
        run("SplitToSequence", np.zeros(5), np.array(0))
    assert run("SplitToSequence", np.zeros((0, 2))) == []


def test_concat_joins_or_stacks():
    assert run("ConcatFromSequence", some(3), axis=0).tolist() == [0, 0, 1, 1, 2, 2]
    assert run("ConcatFromSequence", some(3), axis=-1, new_axis=1).tolist() == [[0, 1, 2]] * 2
    with pytest.raises(ShapeError, match="empty sequence"):
        run("ConcatFromSequence", [], axis=0)
    with pytest.raises(ShapeError, match="no axis 1"):
        run("ConcatFromSequence", some(2), axis=1)


def test_nothing_cannot_be_joined():
    with pytest.raises(ShapeError, match="no tensors"):
        concat(Builder(lambda *_: []), [], 0)


def test_optionals():
    assert run("Optional") is None
    assert numbers(run("Optional", some(2))) == [0, 1]
    assert bool(run("OptionalHasElement", some(2)))
    assert not run("OptionalHasElement", None)
    assert not run("OptionalHasElement")
    assert numbers(run("OptionalGetElement", some(2))) == [0, 1]
    with pytest.raises(LoweringError, match="the optional is empty"):
        run("OptionalGetElement", None)
