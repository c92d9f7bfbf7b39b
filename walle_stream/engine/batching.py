"""A model that is always evaluated with a fixed number of rows, from any mix of requests.

A library's kernels may add in another order when a matrix has other rows or more of them. A
row's result could then depend on the other requests of the moment. Here it does not: the rows of
all requests are joined in order and run in batches of one shape; the last batch is padded.
A trial with many rows, each in every place, precedes the first result of a shape. It checks to the
bit that a row's result depends neither on its place nor on its neighbours.

Libraries work through rows in blocks of up to 16 and treat the remainder differently, so a number
of rows that 16 divides has no remainder. Some processors' kernels have blocks of 12 and of 4
(OpenBLAS for AVX2). Where that changes a result, the rows are run 8 at a time.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from walle_stream.engine.graph import (
    MapType,
    Model,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from walle_stream.engine.hosted import HostedModel
from walle_stream.engine.program import Array
from walle_stream.errors import EngineError, ModelError

_REMEDY: Final = "leave `batch` out"
_TURNS_MAX: Final = 16
_FEW_ROWS: Final = 8

type _Shape = tuple[tuple[Any, tuple[int, ...]], ...]
"""Dtype and shape of a row of each input of a request."""


class BatchedModel:
    """Runs a model on the rows of several requests. Blocks; thread-safe if the model is."""

    def __init__(self, model: HostedModel, batch: int, title: str) -> None:
        """Take over a model whose inputs and outputs have rows as first dimension; runs nothing.

        Each evaluation has ``batch`` rows, a multiple of 16. Errors use ``title`` for the place
        where the model is named.

        Raises:
            ModelError: The model declares an input or output without rows, or with a fixed
                number of rows.
        """
        self._model = model
        self._batch = batch
        self._title = title
        self._tried: dict[_Shape, int | str] = {}  # rows at a time, or a refusal
        self._lock = threading.Lock()
        module = model.module
        if not module.inputs:
            raise ModelError(f"{title}: a model without inputs has no rows: {_REMEDY}")
        for what, kinds in (("input", module.inputs), ("output", module.outputs)):
            for name, kind in kinds.items():
                problem = _problem(kind, batch)
                if problem:
                    raise ModelError(f"{title}: {what} {name!r} {problem}: {_REMEDY}")

    @property
    def module(self) -> Any:
        """The module of the model."""
        return self._model.module

    def __call__(self, *inputs: Array) -> tuple[Array, ...]:
        """Run the model on a few rows at a time, and return its outputs in order.

        Raises:
            ModelError: A row's result depends on other rows, or on its place.
            EngineError: The inputs do not fit the model, or the model cannot be run with them.
        """
        if not _row_count(inputs):
            return self._model(*inputs)
        return tuple(self._run(_shape_of(inputs), inputs))

    def run_many(self, requests: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
        """Run the model for several requests; see ``RowsTogether``."""
        return RowsTogether(self).run_many(requests)

    def close(self) -> None:
        """Release the model; see ``ModelRunner``."""
        self._model.close()

    def _run(self, shape: _Shape, inputs: Sequence[Array]) -> list[Array]:
        batch = self._tried.get(shape)
        if batch is None:
            with self._lock:
                batch = self._tried.get(shape)
                if batch is None:
                    batch = self._tried[shape] = self._try(inputs)
        if isinstance(batch, str):
            raise ModelError(batch)
        count = len(inputs[0])
        # copies of the last row pad the last batch
        batches = (
            np.minimum(np.arange(start, start + batch), count - 1)
            for start in range(0, count, batch)
        )
        parts = [self._outputs([x[rows] for x in inputs]) for rows in batches]
        return [np.concatenate(outputs)[:count] for outputs in zip(*parts, strict=True)]

    def _outputs(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        outputs = self._model(*inputs)
        names = self._model.module.outputs
        for name, array in zip(names, outputs, strict=True):
            if array.dtype == object or not array.ndim or len(array) != len(inputs[0]):
                raise ModelError(
                    f"{self._title}: output {name!r} of {len(inputs[0])} rows has the shape"
                    f" {list(array.shape)}: its first dimension must be the rows: {_REMEDY}"
                )
        return outputs

    def _try(self, inputs: Sequence[Array]) -> int | str:
        refusal = self._refusal(inputs, self._batch)
        if not refusal:
            return self._batch
        if self._batch > _FEW_ROWS:
            with suppress(EngineError):  # the model takes its declared number of rows only
                if not self._refusal(inputs, _FEW_ROWS):
                    return _FEW_ROWS
        return refusal

    def _refusal(self, inputs: Sequence[Array], batch: int) -> str:
        # the reason to refuse the model after a trial, or an empty text
        depends = f"{self._title}: the result for a row depends on"
        for rows, is_request in _trial_rows(inputs, batch):
            try:
                outputs = self._outputs(rows)
                for turn in _turns(batch):
                    turned = self._outputs([np.roll(x, turn, axis=0) for x in rows])
                    if not _are_same([np.roll(y, turn, axis=0) for y in outputs], turned):
                        return (
                            f"{depends} the other rows, or on the row's place among {batch}:"
                            f" {_REMEDY}"
                        )
                alone = self._outputs([np.repeat(x[:1], batch, axis=0) for x in rows])
                if not _are_same([y[:1] for y in outputs], [y[-1:] for y in alone]):
                    return f"{depends} the other rows: {_REMEDY}"
            except EngineError as error:
                if is_request or isinstance(error, ModelError):
                    raise
                # the model does not take rows of the trial
        return ""


def _are_same(outputs: Sequence[Array], others: Sequence[Array]) -> bool:
    # to the bit
    return all(x.tobytes() == y.tobytes() for x, y in zip(outputs, others, strict=True))


def _turns(batch: int) -> list[int]:
    # distances by which the rows are rotated: all of them, or a selection for a long batch
    if batch <= _TURNS_MAX:
        return list(range(1, batch))
    return sorted({1, 2, 3, 5, 7, *(1 << n for n in range(2, batch.bit_length() - 1)), batch - 1})


def _trial_rows(inputs: Sequence[Array], batch: int) -> Iterator[tuple[list[Array], bool]]:
    # a batch of rows, and whether they are the request's
    rows = [x[np.arange(batch) % len(x)] for x in inputs]
    yield rows, True
    half_zero = [x.copy() for x in rows]
    for x in half_zero:
        x[1::2] = 0
    yield half_zero, False
    if not any(x.dtype.kind == "f" for x in inputs):
        return
    # seeded numbers: the verdict must not depend on the request that comes first
    random = np.random.default_rng(batch)

    def drawn(x: Array, scale: float) -> Array:
        return (np.asarray(random.standard_normal(x.shape)) * scale).astype(x.dtype)

    for scale in (1.0, 30.0):
        yield [drawn(x, scale) if x.dtype.kind == "f" else x for x in rows], False


class RowsTogether:
    """A batched model, here or elsewhere, that gets the rows of many requests in one call."""

    def __init__(self, model: Callable[..., tuple[Array, ...]]) -> None:
        """Take over a ``BatchedModel``, or a ``ModelRunner`` that calls one elsewhere."""
        self._model = model

    def __call__(self, *inputs: Array) -> tuple[Array, ...]:
        """Run the model; see ``BatchedModel``."""
        return self._model(*inputs)

    def run_many(self, requests: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
        """Run the model on the rows of several requests, whose inputs are not changed.

        Returns the outputs of each request, in order. They have the same bytes as if the request
        had come alone, and belong to the caller.

        Raises:
            EngineError: The inputs do not fit the model, or the model cannot be run with them.
        """
        results: list[tuple[Array, ...]] = [()] * len(requests)
        alike: dict[_Shape, list[int]] = {}
        for number, inputs in enumerate(requests):
            if _row_count(inputs):
                alike.setdefault(_shape_of(inputs), []).append(number)
            else:
                results[number] = self._model(*inputs)
        for numbers in alike.values():
            counts = [len(requests[number][0]) for number in numbers]
            columns = zip(*(requests[number] for number in numbers), strict=True)
            outputs = self._model(*(np.concatenate(x) if len(x) > 1 else x[0] for x in columns))
            start = 0
            for number, count in zip(numbers, counts, strict=True):
                results[number] = tuple(y[start : start + count].copy() for y in outputs)
                start += count
        return results


def hosted(
    title: str, model: Model, backend: str, threads: int | None, batch: int | None
) -> HostedModel | BatchedModel:
    """Make a model as pipelines run it, in this process; see ``HostedModel.of``.

    ``title`` names the model in errors. An evaluation has ``batch`` rows, or for None the rows of
    the request.

    Raises:
        EngineError: The model cannot run here, is unsuitable for scripts, or has no rows.
    """
    result = HostedModel.of(model, backend, threads)
    return result if batch is None else BatchedModel(result, batch, title)


def _shape_of(inputs: Sequence[Array]) -> _Shape:
    return tuple((array.dtype, array.shape[1:]) for array in inputs)


def _problem(kind: ValueType, batch: int) -> str | None:
    declared = kind.element if isinstance(kind, OptionalType) else kind
    if declared is None:
        return None
    if isinstance(declared, SequenceType) and isinstance(declared.element, MapType):
        return None  # an array with a row for each map
    if not isinstance(declared, TensorType):
        return "is not a tensor"
    if declared.shape is None:
        return None
    if not declared.shape:
        return "has no dimensions, hence no rows"
    rows = declared.shape[0]
    return f"always has {rows} rows" if isinstance(rows, int) and rows != batch else None


def _row_count(inputs: Sequence[Array]) -> int:
    counts = {len(array) if array.ndim else -1 for array in inputs}
    if len(counts) != 1 or -1 in counts:
        listed = ", ".join(str(list(array.shape)) for array in inputs) or "none"
        raise EngineError(
            f"inputs of shapes {listed}: a model with `batch` needs the same number of rows in the"
            " first dimension of each input"
        )
    return counts.pop()
