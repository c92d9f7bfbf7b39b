import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

RNG = np.random.default_rng(3)


def run(operator, *inputs, version=28, known=(), **attributes):
    names = tuple("" if each is None else f"x{at}" for at, each in enumerate(inputs))
    given = {name: each for name, each in zip(names, inputs, strict=True) if name}
    constants = {names[number]: given.pop(names[number]) for number in known}
    node = Node(operator, names, ("y",), attributes, version=version)
    graph = Graph("test", dict.fromkeys(given), {"y": None}, (node,), constants)
    return GraphRunner(graph, {}, Interpreter()).run(given)[0]


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
def test_constant_of_shape_has_one_value(shape):
    made = run("ConstantOfShape", np.array(shape, np.int64), value=np.array([7], np.int8))
    assert (made.shape, made.dtype) == (shape, np.int8)
    assert (made == 7).all()
    assert run("ConstantOfShape", np.array(shape, np.int64)).dtype == np.float32


def test_constant_of_shape_refuses_what_nobody_can_allocate():
    with pytest.raises(ShapeError, match="more than"):
        run("ConstantOfShape", np.array([2**20, 2**20]))
    with pytest.raises(ShapeError, match="negative size"):
        run("ConstantOfShape", np.array([-1]))


def test_constant_fill_knows_its_three_ways():
    assert run("ConstantFill", version=1, shape=(2, 2), value=3.0).tolist() == [[3, 3], [3, 3]]
    shape = np.array([1, 2], np.int32)
    made = run("ConstantFill", shape, version=1, input_as_shape=1, extra_shape=(1,), dtype=6)
    assert (made.shape, made.dtype) == ((1, 2, 1), np.int32)
    assert run("ConstantFill", np.ones((3, 1)), version=1).shape == (3, 1)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("numbers", [(3, 9, 3), (10, 4, -2), (1, 1, 1), (5, 1, 1), (-3, 8, 2)])
def test_range_is_arange(dtype, numbers):
    inputs = [np.array(each, dtype) for each in numbers]
    made = run("Range", *inputs)
    assert np.array_equal(made, np.arange(*numbers, dtype=dtype))
    assert made.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_range_of_narrow_floats_is_counted_in_float32(dtype):
    made = run("Range", *(np.array(each, dtype) for each in (0, 600, 1)))
    assert np.array_equal(made, np.arange(600, dtype=np.float32).astype(dtype))


@pytest.mark.parametrize("numbers", [(0, 1, 0), (0, np.inf, 1), (np.nan, 1, 1)])
def test_range_refuses_what_has_no_end(numbers):
    with pytest.raises(ShapeError, match="has no end"):
        run("Range", *(np.float32(each) for each in numbers))
    with pytest.raises(ShapeError, match="more than"):
        run("Range", np.array(0), np.array(2**40), np.array(1))


@pytest.mark.parametrize("k", [-9, -1, 0, 2, 9])
def test_eye_like_is_eye(k):
    made = run("EyeLike", np.ones((3, 4), np.int32), k=k, dtype=1)
    assert np.array_equal(made, np.eye(3, 4, k, np.float32))
    assert made.dtype == np.float32


def test_eye_like_refuses_what_is_no_matrix():
    with pytest.raises(ShapeError, match="not a matrix"):
        run("EyeLike", np.ones(3))
    assert run("EyeLike", np.ones((0, 3))).shape == (0, 3)


WIDTHS = [(0, 0, 0, 0), (1, 2, 0, 3), (0, 5, 2, 0), (7, 0, 0, 9), (20, 0, 30, 1)]


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 1)])
def test_pad_is_numpys(widths, mode, shape):
    x = RNG.standard_normal(shape)
    pairs = ((widths[0], widths[2]), (widths[1], widths[3]))
    made = run("Pad", x, np.array(widths), mode=mode.encode())
    assert np.array_equal(made, np.pad(x, pairs, mode))


@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_a_border_much_longer_than_the_axis(mode):
    x = RNG.standard_normal((2, 3))
    made = run("Pad", x, np.array([0, 500, 0, 700]), mode=mode.encode())
    assert np.array_equal(made, np.pad(x, ((0, 0), (500, 700)), mode))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_negative_widths_cut_before_the_rest_is_padded(mode):
    x = RNG.standard_normal((5, 4))
    made = run("Pad", x, np.array([-2, 1, 1, -1]), mode=mode.encode())
    assert np.array_equal(made, np.pad(x[2:, :-1], ((0, 1), (1, 0)), mode))


@pytest.mark.parametrize("known", [(1,), (1, 2)])
@pytest.mark.parametrize("widths", [(1, 0, 2, 3), (-1, 2, 4, -2), (-5, 1, 9, 0), (0, -6, 0, 8)])
def test_a_border_of_a_value_that_is_known_late(known, widths):
    x, value = RNG.standard_normal((3, 4)), np.array(2.5)
    made = run("Pad", x, np.array(widths), value, known=known)
    expected = np.full([n + widths[a] + widths[a + 2] for a, n in enumerate(x.shape)], 2.5)
    for at in np.ndindex(expected.shape):
        source = [at[axis] - widths[axis] for axis in range(2)]
        if all(0 <= each < n for each, n in zip(source, x.shape, strict=True)):
            expected[at] = x[tuple(source)]
    assert np.array_equal(made, expected)


def test_pad_of_axes_alone_and_of_text():
    x = RNG.standard_normal((2, 3, 2))
    made = run("Pad", x, np.array([1, 0, 0, 2]), None, np.array([-1, 0]))
    assert np.array_equal(made, np.pad(x, ((0, 2), (0, 0), (1, 0))))
    text = run("Pad", np.array(["a"], object), np.array([1, 0]))
    assert text.tolist() == ["", "a"]


def test_pad_before_opset_11_has_attributes():
    x = np.ones((1, 2), np.float32)
    assert run("Pad", x, version=2, pads=(0, 1, 0, 0), value=4.0).tolist() == [[4, 1, 1]]
    assert run("Pad", x, version=1, paddings=(0, 0, 1, 0)).tolist() == [[1, 1], [0, 0]]


def test_pad_refuses_other_widths_modes_and_empty_edges():
    x = np.ones((2, 2))
    with pytest.raises(ShapeError, match="3 widths for axes"):
        run("Pad", x, np.array([1, 1, 1]))
    with pytest.raises(LoweringError, match="'mode' is 'mirror'"):
        run("Pad", x, np.array([1, 1, 1, 1]), mode=b"mirror")
    with pytest.raises(ShapeError, match="no element to repeat"):
        run("Pad", np.ones((0, 2)), np.array([1, 0, 0, 0]), mode=b"edge")
    with pytest.raises(ShapeError):
        run("Pad", x, np.array([-3, 0, 0, 0]))
    with pytest.raises(ShapeError, match="for axes"):
        run("Pad", x, np.array([1, 1, 1, 1]), None, np.array([0, -2]))


def test_a_seed_gives_the_same_numbers_and_none_gives_others():
    for operator in ("RandomUniform", "RandomNormal"):
        first, again = (run(operator, shape=(4, 50), seed=2.0) for _ in range(2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, run(operator, shape=(4, 50), seed=3.0))
        assert not np.array_equal(*(run(operator, shape=(4, 50)) for _ in range(2)))


@pytest.mark.parametrize("dtype", [(1, np.float32), (10, np.float16), (11, np.float64)])
def test_uniform_numbers_fill_their_interval(dtype):
    made = run("RandomUniform", shape=(20000,), low=-3.0, high=5.0, seed=1.0, dtype=dtype[0])
    assert made.dtype == dtype[1]
    assert -3 <= made.min() < -2.9
    assert 4.9 < made.max() <= 5
    assert abs(made.astype(np.float64).mean() - 1) < 0.1


@pytest.mark.parametrize("count", [20000, 20001])
def test_normal_numbers_have_mean_and_scale(count):
    made = run("RandomNormalLike", np.zeros(count), mean=4.0, scale=2.0, seed=1.0)
    assert made.dtype == np.float64
    assert abs(made.mean() - 4) < 0.1
    assert abs(made.std() - 2) < 0.1
    within = np.mean(np.abs(made - 4) < 2)
    assert abs(within - 0.6827) < 0.02
    halves = made[: count // 2], made[count // 2 :][: count // 2]
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.05


def test_random_numbers_of_no_shape_and_of_no_dtype():
    assert run("RandomNormal", shape=()).shape == ()
    assert run("RandomNormal", shape=(0, 3)).shape == (0, 3)
    with pytest.raises(DTypeError, match="int64"):
        run("RandomUniform", shape=(1,), dtype=7)
    with pytest.raises(DTypeError, match="no element type 99"):
        run("RandomUniform", shape=(1,), dtype=99)
    with pytest.raises(LoweringError, match="'shape' is missing"):
        run("RandomUniform")


def test_bernoulli_hits_as_often_as_asked():
    made = run("Bernoulli", np.full(20000, 0.3, np.float32), seed=5.0, dtype=9)
    assert made.dtype == np.bool_
    assert abs(made.mean() - 0.3) < 0.02
    sure = run("Bernoulli", np.array([0.0, 1.0] * 500, np.float16))
    assert sure.tolist() == [0, 1] * 500


def test_multinomial_samples_by_log_probability():
    chances = np.array([[0.1, 0.6, 0.3, 0.0]])
    with np.errstate(divide="ignore"):
        made = run("Multinomial", np.log(chances * 7), sample_size=20000, seed=1.0, dtype=7)
    assert (made.shape, made.dtype) == ((1, 20000), np.int64)
    found = np.bincount(made[0], minlength=4) / 20000
    assert np.abs(found - chances[0]).max() < 0.02
    assert found[3] == 0


def test_multinomial_refuses_no_classes():
    with pytest.raises(ShapeError, match="samples of"):
        run("Multinomial", np.zeros((2, 0)))
    with pytest.raises(EngineError):
        run("Multinomial", np.zeros((2, 2)), dtype=1)
