"""Conformance suite for backends of the engine: every atomic operator, the raster, and plans.

Subclass ``BackendSuite`` in a test file and implement ``make_backend``; pytest then runs every test
below. The suite needs pytest and ``ml_dtypes``.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest

from walle_stream.engine.module import Backend
from walle_stream.engine.operators import (
    ARG_REDUCTION,
    ARITHMETIC,
    COMPARISON,
    REDUCTION,
    UNARY,
    Operator,
)
from walle_stream.engine.program import Array, Program
from walle_stream.engine.region import Shape
from walle_stream.testing.backend.facts import (
    BINARY_FACTS,
    CASTS,
    FLOATS,
    OTHER_FACTS,
    SIGNED,
    UNARY_FACTS,
    UNSIGNED,
    Fact,
)
from walle_stream.testing.backend.plan_suite import PlanSuite
from walle_stream.testing.backend.programs import random_raster
from walle_stream.testing.backend.rasters import RASTERS, RasterFact
from walle_stream.testing.backend.steps import (
    ULPS_MAX,
    difference,
    dtype_of,
    elements,
    run_step,
    step_of,
    unit,
)

INTEGERS: Final = SIGNED + UNSIGNED
NARROW: Final = (
    "int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
)  # fmt: skip
"""Dtypes for moves, conversions, selection and equality alone; no backend computes with them."""

NUMBERS: Final = FLOATS + INTEGERS
EVERY: Final = (*NUMBERS, "bool", "object", *NARROW)

SHAPES: Final[tuple[Shape, ...]] = ((), (0,), (3, 0, 2), (1,), (7,), (2, 3, 5), (61, 83))
LARGE: Final[Shape] = (3, 257, 129)
_OF_ANY_NUMBER: Final = frozenset(
    {Operator.ABS, Operator.NEG, Operator.SIGN, Operator.CEIL, Operator.FLOOR, Operator.ROUND}
)
_OF_BITS: Final = frozenset({Operator.NOT, Operator.AND, Operator.OR, Operator.XOR})
_SHIFTS: Final = frozenset({Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT})
_OF_ORDER: Final = frozenset(
    {Operator.MINIMUM, Operator.MAXIMUM, Operator.REDUCE_MAX, Operator.REDUCE_MIN}
)
_ROUNDED_BY_HARDWARE: Final = (_OF_ANY_NUMBER - {Operator.SIGN}) | {
    Operator.SQRT, Operator.IS_NAN, Operator.NOT,
}  # fmt: skip

_PLAIN_UNARY: Final = sorted(UNARY - {Operator.CAST, Operator.BITCAST})


def _dtypes(operator: Operator) -> Sequence[str]:
    """Return the dtypes for which a backend must have an operator."""
    if operator in _OF_BITS:
        return ("bool", *INTEGERS)
    if operator in _SHIFTS:
        return INTEGERS
    if operator is Operator.EQUAL:
        return EVERY
    if operator in _OF_ORDER | COMPARISON:
        return ("bool", *NUMBERS)
    if operator in UNARY and operator not in _OF_ANY_NUMBER:
        return FLOATS
    return NUMBERS


def _ulps(operator: Operator) -> float:
    if operator in UNARY:
        # the definition leaves the sign of SIGN's zero open
        return 0 if operator in _ROUNDED_BY_HARDWARE else ULPS_MAX
    # the definition does not order the two zeros
    return ULPS_MAX if operator in {Operator.POW, *_OF_ORDER} else 0


class BackendSuite(PlanSuite):
    """Tests that every backend must pass; pytest collects the subclasses."""

    # Written-out definitions

    @pytest.mark.parametrize(
        "fact", UNARY_FACTS + BINARY_FACTS + OTHER_FACTS, ids=lambda fact: str(fact.operator)
    )
    def test_an_operator_gives_what_its_definition_says(self, backend: Backend, fact: Fact) -> None:
        """Checks special values, ends of ranges, ties and division by zero."""
        for name in fact.dtypes:
            dtype = dtype_of(name)
            inputs = [np.array(each, dtype) for each in fact.inputs]
            made = run_step(backend, fact.operator, inputs, **fact.parameters)
            wanted = np.array(fact.output, made.dtype)
            assert not difference(wanted, made, _ulps(fact.operator)), name

    @pytest.mark.parametrize(
        ("source", "target", "given", "wanted"), CASTS, ids=lambda each: str(each)[:24]
    )
    def test_a_conversion_rounds_once_and_wraps(
        self, backend: Backend, source: str, target: str, given: Any, wanted: Any
    ) -> None:
        """Halves round to even, from the exact value; integers keep their low bits."""
        x = np.array(given, dtype_of(source))
        made = run_step(backend, Operator.CAST, [x], dtype=dtype_of(target))
        assert not difference(np.array(wanted, dtype_of(target)), made)

    # Operators over dtypes and shapes

    @pytest.mark.parametrize("operator", _PLAIN_UNARY)
    def test_an_operator_of_one_element_equals_the_judge(
        self, backend: Backend, judge: Backend, operator: Operator
    ) -> None:
        """Checks every dtype and shape, with special values."""
        for name in _dtypes(operator):
            for seed, shape in enumerate(SHAPES):
                x = elements(dtype_of(name), shape, seed)
                wanted = run_step(judge, operator, [x])
                found = run_step(backend, operator, [x])
                assert not difference(wanted, found, _ulps(operator)), (name, shape)

    @pytest.mark.parametrize("operator", sorted(ARITHMETIC | COMPARISON))
    def test_an_operator_of_two_elements_equals_the_judge(
        self, backend: Backend, judge: Backend, operator: Operator
    ) -> None:
        """Checks every dtype and shape, with special values."""
        for name in _dtypes(operator):
            for seed, shape in enumerate(SHAPES):
                x, y = (elements(dtype_of(name), shape, 2 * seed + each) for each in (0, 1))
                wanted = run_step(judge, operator, [x, y])
                found = run_step(backend, operator, [x, y])
                assert not difference(wanted, found, _ulps(operator)), (name, shape)

    def test_select_chooses_elements_of_every_dtype(self, backend: Backend, judge: Backend) -> None:
        """Elements stay equal bit by bit, including nan and text."""
        for name in EVERY:
            for seed, shape in enumerate(SHAPES):
                condition = elements(dtype_of("bool"), shape, seed)
                x, y = (elements(dtype_of(name), shape, 2 * seed + each) for each in (0, 1))
                wanted = run_step(judge, Operator.SELECT, [condition, x, y])
                found = run_step(backend, Operator.SELECT, [condition, x, y])
                assert not difference(wanted, found), (name, shape)

    @pytest.mark.parametrize("source", EVERY)
    def test_every_dtype_converts_to_every_other(
        self, backend: Backend, judge: Backend, source: str
    ) -> None:
        """Impossible conversions are left out: nan to integers, words to numbers."""
        for target in EVERY:
            x = _convertible(source, target)
            for saturate in (True, False):
                given = {"dtype": dtype_of(target), "saturate": saturate}
                wanted = run_step(judge, Operator.CAST, [x], **given)
                found = run_step(backend, Operator.CAST, [x], **given)
                assert not difference(wanted, found), (target, saturate)

    @pytest.mark.parametrize("mode", ["up", "down", "nearest"])
    def test_exponents_round_as_they_are_told(
        self, backend: Backend, judge: Backend, mode: str
    ) -> None:
        """The dtype float8e8m0 holds only powers of two."""
        x = np.array([0.0, 1.0, 1.25, 1.5, 1.75, 3.0, 2.0**-130, 1e38, np.inf, -1.0, np.nan])
        for saturate in (True, False):
            given = {"dtype": dtype_of("float8_e8m0fnu"), "mode": mode, "saturate": saturate}
            wanted = run_step(judge, Operator.CAST, [x.astype(np.float32)], **given)
            found = run_step(backend, Operator.CAST, [x.astype(np.float32)], **given)
            assert not difference(wanted, found), saturate

    def test_bits_are_read_as_another_dtype_of_their_width(self, backend: Backend) -> None:
        """The way back gives the same bits."""
        for name in NUMBERS:
            x = elements(dtype_of(name), (5, 7), 1)
            bits = np.dtype(f"u{x.dtype.itemsize}")
            made = run_step(backend, Operator.BITCAST, [x], dtype=bits)
            assert not difference(x.view(bits), made), name
            again = run_step(backend, Operator.BITCAST, [made], dtype=x.dtype)
            assert not difference(x, again), name

    # Reductions, products, order

    @pytest.mark.parametrize("operator", sorted(REDUCTION))
    def test_a_reduction_equals_the_judge(
        self, backend: Backend, judge: Backend, operator: Operator
    ) -> None:
        """Any axes are allowed; an empty reduction gives the neutral element."""
        exact = operator in _OF_ORDER
        for name in _dtypes(operator):
            for shape, axes in _REDUCED:
                # a sum may use any order: so no special values, and a small error is allowed
                x = elements(dtype_of(name), shape, len(shape), special=exact)
                wanted = run_step(judge, operator, [x], axes=axes)
                found = run_step(backend, operator, [x], axes=axes)
                if exact or name in INTEGERS:
                    assert not difference(wanted, found, _ulps(operator)), (name, shape, axes)
                else:
                    _assert_near(wanted, found, np.abs(x.astype(np.float64)).sum(), operator)

    @pytest.mark.parametrize("operator", sorted(ARG_REDUCTION))
    def test_a_place_equals_the_judge(
        self, backend: Backend, judge: Backend, operator: Operator
    ) -> None:
        """The first or the last of equal elements is found; nan wins."""
        for name in NUMBERS:
            for shape, axis in (
                ((9,), 0),
                ((4, 7, 3), 1),
                ((4, 7, 3), 2),
                ((1, 1), 0),
                ((0, 5), 1),
            ):
                x = elements(dtype_of(name), shape, axis)
                for last in (False, True):
                    wanted = run_step(judge, operator, [x], axis=axis, last=last)
                    found = run_step(backend, operator, [x], axis=axis, last=last)
                    assert not difference(wanted, found), (name, shape, axis, last)

    def test_a_product_of_matrices_equals_the_judge(self, backend: Backend, judge: Backend) -> None:
        """Stacks have any number of axes; without columns the product is zero."""
        for name in NUMBERS:
            for left, right in _MULTIPLIED:
                x = elements(dtype_of(name), left, 1, special=False)
                y = elements(dtype_of(name), right, 2, special=False)
                wanted = run_step(judge, Operator.MATMUL, [x, y])
                found = run_step(backend, Operator.MATMUL, [x, y])
                if name in INTEGERS:
                    assert not difference(wanted, found), (name, left, right)
                else:
                    _assert_near(wanted, found, 99.0 * left[-1], Operator.MATMUL)

    def test_sorting_equals_the_judge(self, backend: Backend, judge: Backend) -> None:
        """Sorting is stable in both directions, and nan is the greatest."""
        for name in (*NUMBERS, "bool"):
            for shape in ((9,), (0,), (3, 0), (0, 3), (4, 40), (2, 3, 5)):
                x = elements(dtype_of(name), shape, 3)
                for descending in (False, True):
                    wanted = run_step(judge, Operator.ARGSORT, [x], descending=descending)
                    found = run_step(backend, Operator.ARGSORT, [x], descending=descending)
                    assert not difference(wanted, found), (name, shape, descending)

    def test_rows_are_taken_of_every_dtype(self, backend: Backend, judge: Backend) -> None:
        """Rows may be taken in any order and repeatedly."""
        for name in EVERY:
            for shape in ((2, 5, 3), (1, 5, 1), (0, 5, 3), (2, 5, 0)):
                x = elements(dtype_of(name), shape, 4)
                for indices in ([4, 0, 0, 2], [], [1] * 11):
                    rows = np.array(indices, np.int64)
                    wanted = run_step(judge, Operator.TAKE, [x, rows])
                    found = run_step(backend, Operator.TAKE, [x, rows])
                    assert not difference(wanted, found), (name, shape, indices)
        empty = np.zeros((2, 0, 3), np.float32)
        assert run_step(backend, Operator.TAKE, [empty, np.zeros(0, np.int64)]).shape == (2, 0, 3)

    def test_rows_are_put_in_their_order(self, backend: Backend, judge: Backend) -> None:
        """For a row that is put twice, the last one wins, or both are combined."""
        rows = np.array([4, 0, 4, 1, 4], np.int64)
        for reduction in ("none", "add", "mul", "minimum", "maximum"):
            for name in EVERY if reduction == "none" else NUMBERS:
                data, update = (elements(dtype_of(name), (5, 3), each) for each in (5, 6))
                wanted = run_step(judge, Operator.PUT, [data, rows, update], reduction=reduction)
                found = run_step(backend, Operator.PUT, [data, rows, update], reduction=reduction)
                ulps = 0 if reduction == "none" else ULPS_MAX
                assert not difference(wanted, found, ulps), (reduction, name)

    def test_what_is_not_zero_is_found(self, backend: Backend, judge: Backend) -> None:
        """Indexes follow the order of memory for any shape."""
        for name in (*NUMBERS, "bool"):
            for shape in SHAPES:
                x = elements(dtype_of(name), shape, 7)
                wanted = run_step(judge, Operator.NONZERO, [x])
                assert not difference(wanted, run_step(backend, Operator.NONZERO, [x])), shape

    def test_random_numbers_are_below_one_and_a_seed_fixes_them(
        self, backend: Backend, judge: Backend
    ) -> None:
        """Without a seed, each run gives other numbers."""
        for name in ("float32", "float64"):
            given: dict[str, Any] = {"shape": (50, 40), "dtype": dtype_of(name)}
            found = run_step(backend, Operator.RANDOM, [], seed=7, **given)
            assert not difference(run_step(judge, Operator.RANDOM, [], seed=7, **given), found)
            step = step_of(Operator.RANDOM, [], **given)
            plan = backend.plan(Program([], [step.output], [step]))
            (first,), (second,) = plan.run([]), plan.run([])
            assert first.min() >= 0
            assert first.max() < 1
            assert 0.4 < first.mean() < 0.6  # noqa: PLR2004  # seven deviations
            assert (first != second).any()

    def test_strings_are_left_to_the_host(self, backend: Backend) -> None:
        """The host runs operators of text."""
        x = np.array([["a", "b"], ["", "ä"]], object)
        given = {"name": "concat", "shape": (2, 2), "dtype": x.dtype}
        assert run_step(backend, Operator.TEXT, [x, x], **given).tolist() == [
            ["aa", "bb"], ["", "ää"],
        ]  # fmt: skip

    # The raster

    @pytest.mark.parametrize("fact", RASTERS, ids=lambda fact: fact.name)
    def test_a_raster_moves_what_its_regions_say(self, backend: Backend, fact: RasterFact) -> None:
        """Covers flips, broadcasts, diagonals, filled gaps, sums and several inputs."""
        for name in EVERY if fact.is_of_every_dtype else NUMBERS:
            dtype = dtype_of(name)
            if name == "float8_e8m0fnu" and fact.has_zeros:
                continue  # this dtype has no zero
            inputs, wanted, parameters = fact.of(dtype)
            found = run_step(backend, Operator.RASTER, inputs, **parameters)
            assert not difference(wanted, found), name

    @pytest.mark.parametrize("seed", range(40))
    def test_any_raster_equals_the_judge(self, backend: Backend, judge: Backend, seed: int) -> None:
        """Regions have random sizes, strides of either sign, gaps and several inputs."""
        name = ("float32", "int64", "bfloat16", "bool", "object", "int4")[seed % 6]
        inputs, parameters = random_raster(seed, dtype_of(name))
        wanted = run_step(judge, Operator.RASTER, inputs, **parameters)
        assert not difference(wanted, run_step(backend, Operator.RASTER, inputs, **parameters))

    def test_a_large_raster_equals_the_judge(self, backend: Backend, judge: Backend) -> None:
        """The raster has more elements than any buffer of a kernel."""
        x = elements(dtype_of("float32"), LARGE, 1)
        for seed in (1, 2, 3):
            _, parameters = random_raster(seed, x.dtype, LARGE)
            wanted = run_step(judge, Operator.RASTER, [x], **parameters)
            assert not difference(wanted, run_step(backend, Operator.RASTER, [x], **parameters))


_REDUCED: Final[tuple[tuple[Shape, Shape], ...]] = (
    ((7,), (0,)), ((2, 3, 5), (1,)), ((2, 3, 5), (0, 2)), ((2, 3, 5), (0, 1, 2)),
    ((1, 1), (0,)), ((0, 4), (0,)), ((4, 0), (0,)), ((0,), (0,)), ((61, 83), (1,)),
)  # fmt: skip

_MULTIPLIED: Final[tuple[tuple[Shape, Shape], ...]] = (
    ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 2), (2, 0)),
    ((3, 2, 3), (3, 3, 2)), ((1, 2, 3), (1, 3, 2)), ((2, 1, 4, 3), (2, 1, 3, 5)),
    ((0, 2, 3), (0, 3, 2)), ((33, 40), (40, 17)), ((1, 50), (50, 1)),
)  # fmt: skip


def _convertible(source: str, target: str) -> Array:
    x = elements(dtype_of(source), (6, 9), 8)
    is_number = target not in {"object", "bool"}
    if source == "object" and target != "object":
        words = ["1", "0", "3", "2.0", "1.5"] if is_number else ["true", "False", "0", "1"]
        return np.array([words[each % len(words)] for each in range(12)], object).reshape(3, 4)
    if is_number and ("int" in target) and "float" in source:
        wide = x.astype(np.float32)
        kept = np.where(np.isfinite(wide) & (np.abs(wide) < 2) & (wide >= 0), wide, 1.0)  # noqa: PLR2004
        x = kept.astype(x.dtype)
    if target == "float4_e2m1fn":
        # this dtype has no nan
        x = x[x == x]  # noqa: PLR0124
    return x


def _assert_near(wanted: Array, found: Array, scale: float, operator: Operator) -> None:
    assert (wanted.shape, wanted.dtype) == (found.shape, found.dtype)
    theirs, mine = wanted.astype(np.float64), found.astype(np.float64)
    if operator is Operator.PROD:
        assert not difference(wanted, found, 8 * ULPS_MAX)
    else:
        assert np.all(np.abs(theirs - mine) <= 4 * unit(wanted.dtype) * (scale + np.abs(theirs)))
