"""Arrays computed from constants: one for each recipe and its sources, while both live."""

import gc

import numpy as np
import pytest

from walle_stream.engine.derived import Derived, recipe_of
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Step, Tensor


@pytest.fixture
def shared():
    return Derived()


def numbers(count=100, start=0.0):
    return np.arange(start, start + count)


def twice(shared, source):
    return shared.of("twice", [source], lambda: source * 2)


def test_one_result_for_views_of_the_same_elements(shared):
    source = numbers()
    first = twice(shared, source[::2])
    assert np.shares_memory(first, twice(shared, source[::2]))
    others = (twice(shared, source), twice(shared, source[1::2]), twice(shared, source.copy()))
    assert not any(np.shares_memory(first, other) for other in others)
    thrice = shared.of("thrice", [source[::2]], lambda: source[::2] * 3)
    np.testing.assert_array_equal(thrice, source[::2] * 3)


def test_strided_views_belong_to_what_they_view(shared):
    source = numbers()

    def view():
        return np.lib.stride_tricks.as_strided(source, (50,), (16,))

    kept = twice(shared, view())
    assert np.shares_memory(kept, twice(shared, view()))
    np.testing.assert_array_equal(kept, source[::2] * 2)


def test_a_result_is_known_by_its_recipe_after_its_memory_was_freed(shared):
    source = numbers()
    last = shared.of("last", [twice(shared, source)[10:]], lambda: source[10:] * 2 + 1)
    gc.collect()  # nothing holds the doubled numbers
    again = twice(shared, source)
    found = shared.of("last", [again[10:]], lambda: pytest.fail("known"))
    assert np.shares_memory(found, last)
    other = shared.of("last", [again[20:]], lambda: again[20:] + 1)
    assert not np.shares_memory(other, last)


def test_numbers_count_by_their_elements(shared):
    source = numbers()

    def plus(number):
        spread = np.broadcast_to(np.float64(number), source.shape)
        return shared.of("plus", [source, spread], lambda: source + spread)

    first = plus(1.5)
    assert np.shares_memory(first, plus(1.5))
    np.testing.assert_array_equal((first, plus(2.5)), (source + 1.5, source + 2.5))


def test_another_array_in_the_same_memory_has_another_result(shared):
    for start in range(200):
        source = numbers(1000, start)
        np.testing.assert_array_equal(twice(shared, source), source * 2)
        kept = twice(shared, source)
        np.testing.assert_array_equal(kept, source * 2)


def test_nothing_is_left_without_plans_or_without_the_model(shared):
    source = numbers()
    twice(shared, source)
    gc.collect()
    assert not shared._results
    assert not shared._made
    kept = twice(shared, source)
    del source
    gc.collect()
    assert not shared._results
    assert not shared._keys
    assert kept[1] == 2.0


def test_a_better_layout_takes_the_place_of_a_result(shared):
    source = numbers()
    better = np.empty((100, 2))[:, 0]
    better[:] = source * 2
    shared.replace(twice(shared, source), better)  # gone already
    first = twice(shared, source)
    shared.replace(first, better)
    del first
    found = twice(shared, source)
    assert np.shares_memory(found, better)
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, source * 2)


def test_recipes_differ_by_parameters():
    def recipe(**parameters):
        output = Tensor((2,), np.dtype(np.float32))
        return recipe_of(Step(Operator.RASTER, (), (output,), parameters))

    assert recipe(fill=0.0, axes=[1, 2]) == recipe(fill=0.0, axes=(1, 2))
    assert recipe(fill=0.0) != recipe(fill=-0.0)
    assert recipe(fill=np.float32("nan")) == recipe(fill=np.float32("nan"))
    assert recipe(fill={1}) is None
