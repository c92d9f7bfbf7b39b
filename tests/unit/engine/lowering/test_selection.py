import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import LoweringError, ShapeError

RNG = np.random.default_rng(11)


def run(operator, *inputs, version=28, outputs=1, known=(), **attributes):
    names = tuple(f"x{number}" for number in range(len(inputs)))
    given = dict(zip(names, inputs, strict=True))
    constants = {names[number]: given.pop(names[number]) for number in known}
    made = tuple(f"y{number}" for number in range(outputs))
    node = Node(operator, names, made, attributes, version=version)
    graph = Graph("test", dict.fromkeys(given), dict.fromkeys(made), (node,), constants)
    return GraphRunner(graph, {}, Interpreter()).run(given)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint64, np.float16, ml_dtypes.bfloat16])
def test_top_k_is_the_beginning_of_a_stable_sort(axis, largest, dtype):
    x = RNG.integers(0, 4, (3, 5, 4)).astype(dtype)
    values, places = run("TopK", x, np.array([2]), outputs=2, axis=axis, largest=largest)
    key = x.astype(np.float64) * (-1 if largest else 1)
    expected = np.argsort(key, axis=axis, kind="stable").take([0, 1], axis)
    assert np.array_equal(places, expected)
    assert np.array_equal(values, np.take_along_axis(x, expected, axis))
    assert places.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_top_k_takes_nan_for_the_greatest(dtype):
    x = np.array([1, np.nan, -np.inf, np.inf, 2], dtype)
    assert run("TopK", x, np.array([2]), outputs=2)[1].tolist() == [1, 3]
    assert run("TopK", x, np.array([5]), outputs=2, largest=0)[1].tolist() == [2, 0, 4, 3, 1]


def test_top_k_before_opset_10_has_an_attribute():
    assert run("TopK", np.array([3, 9, 7]), version=1, k=2, outputs=2)[0].tolist() == [9, 7]


def test_top_k_refuses_more_than_there_are():
    with pytest.raises(ShapeError, match=r"k is \[4\], for 3 elements"):
        run("TopK", np.array([3, 9, 7]), np.array([4]), outputs=2)
    assert run("TopK", np.zeros((0, 3)), np.array([2]), outputs=2)[0].shape == (0, 2)


@pytest.mark.parametrize("known", [(), (0,)])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 2), (0, 3), (3, 0)])
def test_non_zero_gives_coordinates(shape, known):
    x = RNG.integers(0, 2, shape)
    assert np.array_equal(run("NonZero", x, known=known)[0], np.array(np.nonzero(x)))


def test_non_zero_of_a_scalar_is_of_a_vector_of_one():
    assert run("NonZero", np.array(3.0))[0].tolist() == [[0]]
    assert run("NonZero", np.zeros((), bool))[0].shape == (1, 0)


def test_non_zero_of_nan_and_text():
    assert run("NonZero", np.array([0.0, np.nan, -0.0]))[0].tolist() == [[1]]
    assert run("NonZero", np.array(["", "a"], object))[0].tolist() == [[1]]


def by_first_occurrence(found):
    values, firsts, inverse, counts = found
    order = np.argsort(firsts)
    rank = np.argsort(order)
    return values, order, firsts[order], rank[inverse], counts[order]


@pytest.mark.parametrize("known", [(), (0,)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("shape", [(6, 2, 3), (5, 7), (1, 1), (4, 9, 1)])
def test_unique_is_numpys(axis, is_sorted, shape, known):
    if axis is not None and not -len(shape) <= axis < len(shape):
        pytest.skip("no such axis")
    x = RNG.integers(0, 2 if axis is not None else 5, shape)
    attributes = {} if axis is None else {"axis": axis}
    made = run("Unique", x, outputs=4, known=known, sorted=is_sorted, **attributes)
    found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    values, firsts, inverse, counts = found
    inverse = inverse.reshape(-1)
    if not is_sorted:
        _, order, firsts, inverse, counts = by_first_occurrence((values, firsts, inverse, counts))
        values = values.take(order, 0 if axis is None else axis)
    for mine, its in zip(made, (values, firsts, inverse, counts), strict=True):
        assert np.array_equal(mine, its)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_unique_takes_nan_for_equal(dtype):
    x = np.array([np.nan, 1, np.nan, -0.0, 0.0], dtype)
    values, firsts, inverse, counts = run("Unique", x, outputs=4)
    assert values.astype(np.float32)[:2].tolist() == [0, 1]
    assert np.isnan(values[2].astype(np.float32))
    assert (firsts.tolist(), inverse.tolist()) == ([3, 1, 0], [2, 1, 2, 0, 0])
    assert counts.tolist() == [2, 1, 2]


def test_unique_of_text_and_of_nothing():
    made = run("Unique", np.array(["b", "a", "b"], object), outputs=4)
    assert [each.tolist() for each in made] == [["a", "b"], [1, 0], [1, 0, 1], [1, 2]]
    assert [each.shape for each in run("Unique", np.zeros((0, 2)), outputs=4)] == [(0,)] * 4
    assert run("Unique", np.zeros((3, 0)), outputs=1, axis=0)[0].shape == (1, 0)


def test_unique_refuses_another_order():
    with pytest.raises(LoweringError, match="'sorted' must be 0 or 1"):
        run("Unique", np.array([1]), sorted=2)


def overlap(first, second):
    low, high = np.maximum(first[:2], second[:2]), np.minimum(first[2:], second[2:])
    common = np.prod(np.maximum(high - low, 0))
    union = np.prod(first[2:] - first[:2]) + np.prod(second[2:] - second[:2]) - common
    return common / union if union else 0.0


def suppressed(boxes, scores, most, threshold, least):
    """Choose one by one, as the operator's text says."""
    chosen = []
    for batch, name in np.ndindex(scores.shape[:2]):
        line = scores[batch, name]
        kept = []
        for place in sorted(np.flatnonzero(line >= least), key=lambda at: (-line[at], at)):
            ours = boxes[batch, place]
            if len(kept) < most and all(
                overlap(ours, boxes[batch, other]) <= threshold for other in kept
            ):
                kept.append(place)
        chosen += [[batch, name, place] for place in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


def some_boxes(batches, count):
    low = RNG.uniform(0, 1, (batches, count, 2))
    return np.concatenate([low, low + RNG.uniform(0.1, 0.6, low.shape)], 2).astype(np.float32)


@pytest.mark.parametrize("most", [1, 4, 100])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("pairs", [0, 1 << 24])
@pytest.mark.parametrize("unrolled", [0, 256])
def test_suppression_is_greedy(most, threshold, pairs, unrolled, monkeypatch):
    module = "walle_stream.engine.lowering.suppression"
    monkeypatch.setattr(f"{module}.PAIRS_MAX", pairs)
    monkeypatch.setattr(f"{module}.STEPS_UNROLLED", unrolled)
    boxes = some_boxes(2, 20)
    scores = RNG.uniform(0, 1, (2, 3, 20)).astype(np.float32).round(1)
    made = run(
        "NonMaxSuppression", boxes, scores, np.array([most]), np.float32([threshold]),
        np.float32([0.25]), known=(2,),
    )[0]  # fmt: skip
    assert np.array_equal(made, suppressed(boxes, scores, most, threshold, np.float32(0.25)))


def test_suppression_by_centers_is_by_corners():
    boxes = some_boxes(1, 12)
    scores = RNG.uniform(0, 1, (1, 1, 12)).astype(np.float32)
    size = boxes[..., 2:] - boxes[..., :2]
    centers = np.concatenate([(boxes[..., :2] + size / 2)[..., ::-1], size[..., ::-1]], 2)
    rest = (np.array(5), np.float32(0.4))
    made = run("NonMaxSuppression", centers, scores, *rest, center_point_box=1)[0]
    assert np.array_equal(made, run("NonMaxSuppression", boxes, scores, *rest)[0])


def test_suppression_of_nothing_and_by_default():
    boxes, scores = some_boxes(1, 3), np.ones((1, 1, 3), np.float32)
    assert run("NonMaxSuppression", boxes, scores)[0].shape == (0, 3)
    empty = run("NonMaxSuppression", boxes[:, :0], scores[..., :0], np.array(3))[0]
    assert empty.shape == (0, 3)
    nan = run("NonMaxSuppression", boxes, scores * np.nan, np.array(3))[0]
    assert nan.shape == (0, 3)


def test_suppression_of_a_huge_count_ends_with_the_boxes():
    boxes, scores = some_boxes(1, 300), RNG.uniform(0, 1, (1, 2, 300)).astype(np.float32)
    made = run("NonMaxSuppression", boxes, scores, np.array(2**62), np.float32(0.5))[0]
    assert np.array_equal(made, suppressed(boxes, scores, 300, np.float32(0.5), 0))


def test_suppression_refuses_other_shapes():
    with pytest.raises(ShapeError, match="with scores"):
        run("NonMaxSuppression", np.zeros((1, 3, 5)), np.zeros((1, 1, 3)), np.array(3))
    with pytest.raises(ShapeError, match="not a scalar"):
        run("NonMaxSuppression", some_boxes(1, 3), np.ones((1, 1, 3), np.float32), np.array(3),
            np.ones(2, np.float32))  # fmt: skip
