import ml_dtypes
import numpy as np
import pytest

from walle_stream.errors import DTypeError, LoweringError, ShapeError


def _random(*shape):
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)), ((3,), (3, 2)), ((4, 3), (3,)), ((5, 4, 3), (3,)), ((3,), (5, 3, 2)),
        ((5, 4, 3), (3, 2)), ((2, 5, 4, 3), (1, 1, 3, 2)), ((2, 1, 4, 3), (5, 3, 2)),
        ((4, 3), (5, 3, 2)), ((4, 0), (0, 2)), ((0, 4, 3), (3, 2)), ((4, 3), (1, 3, 2)),
        ((1, 4, 3), (2, 1, 3, 5)),
    ],
)  # fmt: skip
def test_products_are_those_of_numpy(run_node, left, right):
    x, y = _random(*left), _random(*right)
    (made,) = run_node("MatMul", [x, y])
    wanted = np.matmul(x, y)
    assert made.shape == wanted.shape
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_products_of_whole_numbers_are_exact(run_node):
    x = np.array([[2**40, 1]])
    np.testing.assert_array_equal(run_node("MatMul", [x, x.T])[0], x @ x.T)


def test_narrow_products_add_up_in_float32(run_node):
    x = np.ones((1, 4096), ml_dtypes.bfloat16)
    assert run_node("MatMul", [x, x.T])[0] == 4096


def test_gemm_scales_and_adds(run_node):
    x, y, bias = _random(3, 2), _random(4, 3), _random(4)
    (made,) = run_node("Gemm", [x, y, bias], alpha=0.5, beta=-2.0, transA=1, transB=1)
    np.testing.assert_allclose(made, 0.5 * x.T @ y.T - 2 * bias, rtol=1e-5, atol=1e-6)
    (made,) = run_node("Gemm", [x, y, bias], version=6, broadcast=1, transA=1, transB=1)
    np.testing.assert_allclose(made, x.T @ y.T + bias, rtol=1e-5, atol=1e-6)
    whole = np.array([[1, 2], [3, 4]], np.int32)
    (made,) = run_node("Gemm", [whole, whole, whole], alpha=0.5, beta=3.0)
    np.testing.assert_array_equal(made, (whole @ whole * 0.5).astype(np.int32) + 3 * whole)


def test_gemm_of_known_weights_is_a_product_and_a_sum(count_steps):
    assert count_steps("Gemm", [_random(2, 3), _random(4, 3), _random(4)], (1, 2), transB=1) == 2


@pytest.mark.parametrize("size", [0, 1, 2, 3, 6, 17])
def test_determinants(run_node, size):
    x = np.random.default_rng(size).standard_normal((2, 3, size, size))
    (made,) = run_node("Det", [x])
    np.testing.assert_allclose(made, np.linalg.det(x), rtol=1e-9)


def test_determinants_that_need_another_row_or_are_zero(run_node):
    x = np.array([[[0, 2], [3, 4]], [[1, 2], [2, 4]], [[0, 0], [0, 5]]], np.float32)
    np.testing.assert_array_equal(run_node("Det", [x])[0], [-6, 0, 0])
    assert run_node("Det", [np.zeros((0, 2, 2), np.float16)])[0].shape == (0,)


@pytest.mark.parametrize(
    ("operator", "shapes", "error", "words"),
    [
        ("MatMul", [(), (3,)], ShapeError, "has a scalar"),
        ("MatMul", [(2, 3), (2, 3)], ShapeError, "matmul of shapes"),
        ("MatMul", [(2, 1, 3), (3, 3, 1)], ShapeError, "do not fit"),
        ("Gemm", [(2, 3, 1), (3, 1)], ShapeError, "is not a matrix"),
        ("Gemm", [(2, 3), (3, 1), (3, 1)], ShapeError, "cannot be broadcast"),
        ("Det", [(3,)], ShapeError, "square"),
        ("Det", [(2, 3)], ShapeError, "square"),
        ("Det", [(1, 2000, 2000)], LoweringError, "2000 rows"),
    ],
)
def test_bad_input_is_named(run_node, operator, shapes, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, [np.ones(shape, np.float32) for shape in shapes])


def test_two_dtypes_are_refused(run_node):
    with pytest.raises(DTypeError, match="float32 and float64"):
        run_node("MatMul", [np.ones((1, 1), np.float32), np.ones((1, 1))])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii", [(3, 3)]),
        ("ii->i", [(3, 3)]),
        ("iij->ji", [(3, 3, 2)]),
        ("iii->i", [(2, 2, 2)]),
        ("ij->", [(2, 3)]),
        ("i,i", [(3,), (3,)]),
        ("i,j->ij", [(2,), (3,)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bi,bi->b", [(4, 3), (4, 3)]),
        ("bij,i->j", [(4, 3, 2), (3,)]),
        ("...ij,...jk->...ik", [(2, 1, 2, 3), (5, 3, 4)]),
        ("...ii->...i", [(4, 3, 3)]),
        ("...,...", [(2, 3), (3,)]),
        ("i...->...", [(2, 3, 4)]),
        ("i...j", [(2, 3, 4)]),
        ("...i,...->i...", [(2, 3), (1,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ab,cd,ef->ace", [(2, 3), (4, 5), (2, 2)]),
        ("a,ab,abc->bc", [(2,), (2, 3), (2, 3, 4)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        (" i j , j k -> k i ", [(2, 3), (3, 4)]),
        ("aA,Ab", [(2, 3), (3, 4)]),
        (",ij->ji", [(), (2, 3)]),
        ("", [()]),
        ("ij,jk->ik", [(2, 0), (0, 4)]),
        ("ii->i", [(0, 0)]),
        ("ij,ij->ij", [(0, 3), (1, 3)]),
    ],
)
def test_equations(run_node, equation, shapes):
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(shape) for shape in shapes]
    (made,) = run_node("Einsum", inputs, equation=equation.encode())
    wanted = np.einsum(equation, *inputs)
    assert made.shape == wanted.shape
    np.testing.assert_allclose(made, wanted, rtol=1e-9, atol=1e-12)


def test_an_ellipsis_that_the_output_lacks_is_summed(run_node):
    x = np.arange(6.0).reshape(2, 3)
    (made,) = run_node("Einsum", [x], equation=b"...j->j")
    np.testing.assert_array_equal(made, x.sum(0))


def test_whole_numbers_are_exact_and_narrow_floats_add_up_in_float32(run_node):
    x = np.array([2**60 + 1, 1])
    assert run_node("Einsum", [x, x], equation=b"i,j->")[0] == (2**60 + 2) ** 2 % 2**64
    half = np.full((1, 4096), 0.1, np.float16)
    (made,) = run_node("Einsum", [half, half], equation=b"bi,bi->b")
    np.testing.assert_allclose(made, [4096 * float(half[0, 0]) ** 2], rtol=1e-3)


@pytest.mark.parametrize(
    ("equation", "shapes", "error", "words"),
    [
        ("ij->ij", [(2, 3), (3,)], LoweringError, "has 1 inputs, not 2"),
        ("ij->ik", [(2, 3)], LoweringError, "repeats or invents an axis"),
        ("ij->ii", [(2, 3)], LoweringError, "repeats or invents an axis"),
        ("ij", [(2, 3, 4)], ShapeError, "does not have 3 axes"),
        ("...ij", [(2,)], ShapeError, "does not have 1 axes"),
        ("i1->i", [(2, 3)], LoweringError, "not letters"),
        ("..i", [(2, 3)], LoweringError, "not letters"),
        ("i......", [(2, 3)], LoweringError, "not letters"),
        ("i->j->k", [(2,)], LoweringError, "not letters"),
        ("ij,jk", [(2, 3), (4, 5)], ShapeError, "sizes 4 and 3|sizes 3 and 4"),
        ("ii", [(1, 3)], ShapeError, "axis 'i'"),
    ],
)
def test_bad_equations_are_named(run_node, equation, shapes, error, words):
    with pytest.raises(error, match=words):
        run_node("Einsum", [np.ones(each) for each in shapes], equation=equation.encode())
