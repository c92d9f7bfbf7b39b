"""Facts about the plans of a backend: programs of many steps, memory, errors, threads."""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final

import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.module import Backend
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Program, Step, Tensor
from walle_stream.engine.region import Shape
from walle_stream.errors import EngineError
from walle_stream.testing.backend.programs import chain_of, flipped
from walle_stream.testing.backend.steps import (
    ORIGIN,
    difference,
    dtype_of,
    elements,
    run_step,
    step_of,
)

THREADS: Final = 4

CHAIN_ULPS: Final = 256
"""Error limit of many steps, in units in the last place of an element or of 1, if greater."""


class PlanSuite(ABC):
    """A part of ``BackendSuite``."""

    large: ClassVar[Shape] = (300, 96)
    """Shape of tensors that do not fit into a cache; a slow backend may choose a smaller one."""

    @abstractmethod
    def make_backend(self) -> Backend:
        """Return a new backend under test."""

    def make_judge(self) -> Backend:
        """Return the backend whose results are right: the reference."""
        return Interpreter()

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test."""
        return self.make_backend()

    @pytest.fixture
    def judge(self) -> Backend:
        """Return the backend whose results are right."""
        return self.make_judge()

    # Programs

    @pytest.mark.parametrize("seed", range(40))
    def test_a_chain_of_steps_equals_the_judge(
        self, backend: Backend, judge: Backend, seed: int
    ) -> None:
        """Passes, tiles and reuse of memory do not change results."""
        shape = [(5, 7), (1,), (0, 4), self.large, (513, 3)][seed % 5]
        name = ("float32", "float64", "float16")[seed % 3]
        program = chain_of(seed, shape, dtype_of(name), count=6 + seed)
        inputs = [elements(each.dtype, each.shape, seed, special=False) for each in program.inputs]
        wanted = judge.plan(program).run(inputs)
        found = backend.plan(program).run(inputs)
        for mine, theirs in zip(found, wanted, strict=True):
            assert not difference(theirs, mine, CHAIN_ULPS, least=1)

    def test_a_plan_gives_the_same_each_time(self, backend: Backend) -> None:
        """Results do not depend on earlier runs."""
        program = chain_of(3, (40, 30), dtype_of("float32"))
        plan = backend.plan(program)
        runs = [[elements(x.dtype, x.shape, seed) for x in program.inputs] for seed in (1, 2)]
        first, other, again = plan.run(runs[0]), plan.run(runs[1]), plan.run(runs[0])
        assert not any(difference(x, y) for x, y in zip(first, again, strict=True))
        assert any(difference(x, y) for x, y in zip(first, other, strict=True))

    def test_an_input_that_nobody_reads_is_given_all_the_same(self, backend: Backend) -> None:
        """Unread inputs and steps with unread outputs do not change results."""
        x, dead = (Tensor((2, 3), np.dtype(np.float32)) for _ in range(2))
        kept, lost, unread = (Tensor((2, 3), x.dtype) for _ in range(3))
        steps = [
            Step(Operator.NEG, (x,), (kept,)), Step(Operator.EXP, (unread,), (lost,)),
        ]  # fmt: skip
        given = [elements(x.dtype, (2, 3), seed) for seed in range(3)]
        (made,) = backend.plan(Program([dead, x, unread], [kept], steps)).run(given)
        assert not difference(-given[1], made)

    @pytest.mark.parametrize("name", ["float32", "object", "int4"])
    def test_outputs_are_any_tensors_in_any_order(self, backend: Backend, name: str) -> None:
        """A repeated output, an input of another step, an input and a constant are all allowed."""
        dtype = dtype_of(name)
        x, fixed = Tensor((2, 3), dtype), Tensor((2,), dtype, elements(dtype, (2,), 9))
        given = elements(dtype, (2, 3), 1)
        first, second = flipped(x), flipped(fixed)
        third = flipped(first.output)
        program = Program(
            [x],
            [third.output, first.output, x, fixed, first.output, second.output],
            [first, second, third],
        )
        made = backend.plan(program).run([given])
        mirrored = given.reshape(-1)[::-1].reshape(2, 3)
        constant = elements(dtype, (2,), 9)
        wanted = [given, mirrored, given, constant, mirrored, constant[::-1]]
        assert [difference(x, y) for x, y in zip(wanted, made, strict=True)] == [""] * 6

    @pytest.mark.parametrize("name", ["float32", "object", "int4"])
    def test_what_is_given_stays_and_what_is_made_is_the_callers(
        self, backend: Backend, name: str
    ) -> None:
        """Callers may write to outputs; inputs and constants stay unchanged."""
        dtype = dtype_of(name)
        x, fixed = Tensor((2, 3), dtype), Tensor((2, 3), dtype, elements(dtype, (2, 3), 9))
        step = flipped(x)
        plan = backend.plan(Program([x], [step.output, x, fixed], [step]))
        given = elements(dtype, (2, 3), 1)
        before, made = given.copy(), plan.run([given])
        kept = [each.copy() for each in made]
        for each in made:
            each[...] = np.zeros((), dtype)
        assert not difference(before, given)
        assert [difference(x, y) for x, y in zip(kept, plan.run([given]), strict=True)] == [""] * 3

    def test_inputs_lie_in_memory_as_they_like(self, backend: Backend, judge: Backend) -> None:
        """Inputs may be reversed, transposed, strided, broadcast and read-only."""
        base = elements(dtype_of("float32"), (12, 10), 1, special=False)
        views = [base[::-2, ::3], base.T[:6, :4], np.broadcast_to(base[0, 0], (6, 4))]
        for each in views:
            each.flags.writeable = False
            program = chain_of(5, each.shape, each.dtype)
            given = [each] * len(program.inputs)
            wanted, found = judge.plan(program).run(given), backend.plan(program).run(given)
            for mine, theirs in zip(found, wanted, strict=True):
                assert not difference(theirs, mine, CHAIN_ULPS, least=1)

    def test_a_program_of_constants_alone_runs(self, backend: Backend) -> None:
        """The constant may be a broadcast view without memory of its own."""
        dtype = np.dtype(np.int32)
        fixed = Tensor((3, 4), dtype, np.broadcast_to(np.array(7, dtype), (3, 4)))
        made = Tensor((3, 4), dtype)
        step = Step(Operator.ADD, (fixed, fixed), (made,))
        assert backend.plan(Program([], [made], [step])).run([])[0].tolist() == [[14] * 4] * 3

    def test_one_step_is_computed_as_a_plan_would(self, backend: Backend) -> None:
        """Lowering folds constants by ``compute``."""
        for operator in (Operator.ADD, Operator.MAXIMUM, Operator.LESS):
            x, y = (elements(dtype_of("int16"), (4, 3), each) for each in (1, 2))
            step = step_of(operator, [(x.shape, x.dtype)] * 2)
            assert not difference(
                run_step(backend, operator, [x, y]), backend.compute(step, [x, y])
            )

    # Errors

    @pytest.mark.parametrize("index", [-1, 5, 1 << 40, -(1 << 63)])
    @pytest.mark.parametrize("operator", [Operator.TAKE, Operator.PUT])
    def test_an_index_out_of_range_is_an_error_that_names_the_node(
        self, backend: Backend, operator: Operator, index: int
    ) -> None:
        """The plan can run again afterwards."""
        shape = (5, 2) if operator is Operator.PUT else (1, 5, 2)
        x = elements(dtype_of("float32"), shape, 1)
        given = [x, np.array([1, 2], np.int64), x[:2]][: 3 if operator is Operator.PUT else 2]
        step = step_of(operator, [(each.shape, each.dtype) for each in given])
        plan = backend.plan(Program([*step.inputs], [step.output], [step]))
        (wanted,) = plan.run(given)
        with pytest.raises(EngineError, match=ORIGIN):
            plan.run([x, np.array([1, index], np.int64), *given[2:]])
        assert not difference(wanted, plan.run(given)[0])

    def test_a_row_of_nothing_is_out_of_range(self, backend: Backend) -> None:
        """This holds even if no element would be read."""
        for shape in ((1, 0, 2), (0, 3, 2), (1, 3, 0)):
            given: list[Array] = [np.zeros(shape, np.float32), np.array([7], np.int64)]
            with pytest.raises(EngineError, match=ORIGIN):
                run_step(backend, Operator.TAKE, given)

    # Threads

    def test_threads_run_one_plan_at_once(self, backend: Backend) -> None:
        """Each thread gets the results of its own inputs."""
        program = chain_of(7, self.large, dtype_of("float32"))
        plan = backend.plan(program)
        given = [
            [elements(x.dtype, x.shape, seed) for x in program.inputs] for seed in range(THREADS)
        ]
        wanted = [plan.run(each) for each in given]
        gate = threading.Barrier(THREADS)

        def run(number: int) -> list[str]:
            gate.wait()
            return [
                difference(x, y)
                for _ in range(8)
                for x, y in zip(wanted[number], plan.run(given[number]), strict=True)
            ]

        with ThreadPoolExecutor(THREADS) as pool:
            found = [each for some in pool.map(run, range(THREADS)) for each in some]
        assert not any(found)
