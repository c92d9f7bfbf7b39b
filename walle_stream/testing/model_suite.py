"""Conformance suite for hosted models, as scripts use them, wherever a model runs.

Subclass ``ModelSuite`` in a test file and implement ``make_runners``; pytest then runs every test
below. The suite needs pytest and the extra ``onnx``; its models are ONNX texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from walle_stream.engine.graph import Model
from walle_stream.engine.hosted import HostedModel
from walle_stream.engine.program import Array
from walle_stream.engine.session import read_model_bytes
from walle_stream.errors import DTypeError, EngineError
from walle_stream.ports import ModelRunner

TEXTS: Final = {
    "rank": """
<ir_version: 8, opset_import: ["": 17]>
rank (int64[n] items, float[n, 2] seen) => (float[n] score, bool[n] liked, float16[n] small)
<float[2] w = {0.5, -0.25}, float nought = {0.0}>
{
  part = MatMul(seen, w)
  number = Cast<to = 1>(items)
  score = Add(part, number)
  liked = Greater(score, nought)
  small = Cast<to = 10>(score)
}
""",
    "parts": """
<ir_version: 8, opset_import: ["": 17]>
parts (float[n] x) => (seq(float[n]) both, float[n] x2)
{
  both = SequenceConstruct(x, x)
  x2 = Identity(x)
}
""",
    "power": """
<ir_version: 8, opset_import: ["": 17]>
power (int64 n, float[k, k] x) => (float[k, k] y)
{
  yes = Constant<value = bool {1}>()
  y = Loop(n, yes, x) <body = body (int64 i, bool go, float[k, k] x) => (bool go2, float[k, k] x2)
  {
    go2 = Identity(go)
    xx = MatMul(x, x)
    x2 = Tanh(xx)
  }>
}
""",
}
"""Models of the tests, by name; the time of ``power`` grows with ``n``."""

_THREADS: Final = 6
_CALLS: Final = 30


@cache
def suite_models() -> Mapping[str, Model]:
    """Return the suite's models by name; needs the extra ``onnx``."""
    onnx: Any = pytest.importorskip("onnx")
    return {
        name: read_model_bytes(onnx.parser.parse_model(text).SerializeToString())
        for name, text in TEXTS.items()
    }


def rank_inputs(rows: int, seed: int = 0) -> tuple[Array, Array]:
    """Return random inputs of ``rank``: int64 ``(rows,)`` and float32 ``(rows, 2)``.

    Args:
        rows: Number of rows.
        seed: Seed of the numbers.
    """
    made = np.random.default_rng(seed)
    return made.integers(-9, 9, rows), made.standard_normal((rows, 2)).astype(np.float32)


class ModelSuite(ABC):
    """Tests that all runners must pass; each test gets new runners."""

    @abstractmethod
    def make_runners(self) -> Mapping[str, ModelRunner]:
        """Return runners of ``suite_models()``, by name, with one thread for products.

        Called for each test; the runners' backing may be shared.
        """

    @pytest.fixture
    def runners(self) -> Iterator[Mapping[str, ModelRunner]]:
        """Yield runners and close them."""
        made = self.make_runners()
        yield made
        for each in made.values():
            each.close()

    def test_outputs_come_in_order_in_dtypes_that_scripts_have(
        self, runners: Mapping[str, ModelRunner]
    ) -> None:
        """Casts and widening equal those of this process."""
        items, seen = np.array([1.0, -4.0]), np.array([[2.0, 4.0], [0.0, 0.0]])
        score, liked, small = runners["rank"](items, seen)
        assert (score.dtype, liked.dtype, small.dtype) == (np.float32, np.uint8, np.float32)
        assert (score.tolist(), liked.tolist(), small.tolist()) == ([1, -4], [1, 0], [1, -4])

    @pytest.mark.parametrize("rows", [0, 1, 7, 300, 20_000])
    def test_it_gives_the_bytes_that_this_process_gives(
        self, runners: Mapping[str, ModelRunner], rows: int
    ) -> None:
        """Results are the same for any size and on repetition."""
        inputs = rank_inputs(rows)
        wanted = here("rank", *inputs)
        for _ in range(2):
            assert _bytes(runners["rank"](*inputs)) == _bytes(wanted)

    def test_products_of_matrices_give_the_same_bytes(
        self, runners: Mapping[str, ModelRunner]
    ) -> None:
        """The sums of a product depend on its blocks, which must be the same."""
        x = np.random.default_rng(1).standard_normal((160, 160)).astype(np.float32) / 13
        inputs = np.array(3), x
        assert _bytes(runners["power"](*inputs)) == _bytes(here("power", *inputs))

    def test_outputs_are_the_callers_and_inputs_stay_as_they_are(
        self, runners: Mapping[str, ModelRunner]
    ) -> None:
        """A write to an output changes neither an input nor later outputs."""
        for rows in (3, 30_000):
            x = np.arange(rows, dtype=np.float32)
            before = x.copy()
            _, y = runners["parts"](x)
            y += 1
            assert np.array_equal(x, before)
            assert np.array_equal(runners["parts"](x)[1], before)

    def test_inputs_may_be_read_only_and_anywhere(self, runners: Mapping[str, ModelRunner]) -> None:
        """Views, other memory orders and read-only arrays are allowed."""
        items, seen = rank_inputs(40)
        wanted = _bytes(here("rank", items[::2], seen[::2]))
        order = np.asfortranarray(seen[::2])
        order.flags.writeable = False
        assert _bytes(runners["rank"](items[::2], order)) == wanted

    def test_an_output_that_is_no_tensor_is_an_array_of_objects(
        self, runners: Mapping[str, ModelRunner]
    ) -> None:
        """Scripts cannot request such an output."""
        assert runners["parts"](np.ones(2, np.float32))[0].dtype == object

    def test_errors_are_those_of_this_process(self, runners: Mapping[str, ModelRunner]) -> None:
        """Class and message are the same, since scripts see both."""
        items, seen = rank_inputs(2)
        wrong: list[tuple[Array, ...]] = [(items,), (items, seen[:1]), (items, seen[0]), (seen,)]
        wrong.append((np.array([0.5, 1.0]), seen))
        for inputs in wrong:
            with pytest.raises(EngineError) as wanted:
                here("rank", *inputs)
            with pytest.raises(EngineError) as found:
                runners["rank"](*inputs)
            assert type(found.value) is type(wanted.value)
            assert str(found.value) == str(wanted.value)
        assert issubclass(type(found.value), DTypeError)

    def test_threads_get_what_they_asked_for(self, runners: Mapping[str, ModelRunner]) -> None:
        """Several threads call at a time, with different shapes."""
        inputs = [rank_inputs(1 + n % 7, n) for n in range(_CALLS)]
        with ThreadPoolExecutor(_THREADS) as threads:
            found = list(threads.map(lambda each: _bytes(runners["rank"](*each)), inputs))
        assert found == [_bytes(here("rank", *each)) for each in inputs]

    def test_a_closed_model_refuses(self, runners: Mapping[str, ModelRunner]) -> None:
        """Closing twice is allowed."""
        runner = runners["parts"]
        runner.close()
        runner.close()
        with pytest.raises(EngineError, match="closed"):
            runner(np.ones(2, np.float32))


def here(name: str, *inputs: Array) -> tuple[Array, ...]:
    """Run a model of the suite in this process, with one thread.

    Args:
        name: Name of the model.
        inputs: Inputs by position.

    Returns:
        The model's outputs.
    """
    return _model_here(name)(*inputs)


@cache
def _model_here(name: str) -> HostedModel:
    return HostedModel.of(suite_models()[name])


def _bytes(outputs: tuple[Array, ...]) -> list[Any]:
    return [(each.dtype, each.shape, each.tobytes()) for each in outputs]
