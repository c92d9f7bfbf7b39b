"""Mutated bytecode that the check accepts is run: no mutant may end its process."""

import pytest

from tests.property.bytecode_fuzz.drive import fuzz

pytestmark = pytest.mark.vm

MUTANTS, MANY_MUTANTS = 600, 5_000
SEEDS = ["suite", *(pytest.param(f"long-{n}", marks=pytest.mark.slow) for n in range(10))]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_accepted_mutant_crashes_hangs_or_leaves_an_exception(seed):
    found = fuzz(seed, MUTANTS if seed == "suite" else MANY_MUTANTS)
    assert found.crashes == []
    assert found.made > found.accepted > found.made // 20
    assert found.ended > found.accepted // 4
