"""Einsum: every form of an equation, held against numpy."""

import numpy as np
import pytest

from walle_stream.errors import LoweringError, ShapeError


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
        ("ij->ij", [(2, 3), (3,)], LoweringError, "of 1 inputs, not 2"),
        ("ij->ik", [(2, 3)], LoweringError, "not of its inputs' axes"),
        ("ij->ii", [(2, 3)], LoweringError, "not of its inputs' axes"),
        ("ij", [(2, 3, 4)], ShapeError, "of a tensor of 3 axes"),
        ("...ij", [(2,)], ShapeError, "of a tensor of 1 axes"),
        ("i1->i", [(2, 3)], LoweringError, "not of letters"),
        ("..i", [(2, 3)], LoweringError, "not of letters"),
        ("i......", [(2, 3)], LoweringError, "not of letters"),
        ("i->j->k", [(2,)], LoweringError, "not of letters"),
        ("ij,jk", [(2, 3), (4, 5)], ShapeError, "size 4 and of size 3|size 3 and of size 4"),
        ("ii", [(1, 3)], ShapeError, "axis 'i'"),
    ],
)
def test_bad_equations_are_named(run_node, equation, shapes, error, words):
    with pytest.raises(error, match=words):
        run_node("Einsum", [np.ones(each) for each in shapes], equation=equation.encode())
