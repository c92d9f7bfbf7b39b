"""TfIdfVectorizer: counts of the n-grams of a pool.

An n-gram is found token by token. Each step looks up a pair among the pairs of the pool: the
number of the prefix, and the last token.
"""

from dataclasses import dataclass

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import put
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.features import reals
from walle_stream.engine.lowering.lookups import indices_of, taken
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import FLOAT32, INT64, TEXT, check_size, is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_MATRIX = 2
_SCANS_MAX = 1 << 10


@dataclass(frozen=True, slots=True)
class _Pool:
    tokens: Array
    """Distinct tokens; any other token belongs to no n-gram."""
    grams: dict[tuple[int, ...], int]
    """Position in ``indexes`` of each n-gram, by the numbers of its tokens."""
    indexes: Array
    """Columns of the output, by n-gram."""

    @property
    def columns(self) -> int:
        return int(self.indexes.max(initial=-1)) + 1


@lowers("TfIdfVectorizer")
def _tf_idf_vectorizer(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    if x.rank > _MATRIX:
        raise ShapeError(f"shape {list(x.shape)} is neither [C] nor [N, C]")
    mode, pool = call.choice("mode", ("TF", "IDF", "TFIDF")), _pool(call)
    if (x.dtype == TEXT) != (pool.tokens.dtype == TEXT) or not (
        x.dtype == TEXT or is_integer(x.dtype)
    ):
        raise DTypeError(f"a pool of {pool.tokens.dtype.name} for {x.dtype.name}")
    rows, length = x.shape if x.rank == _MATRIX else (1, x.size)
    shape = (rows, pool.columns) if x.rank == _MATRIX else (pool.columns,)
    check_size((rows, len(pool.indexes) + 1))
    check_size(shape)
    matrix = builder.reshape(x if x.dtype == TEXT else builder.cast(x, INT64), (rows, length))
    counts = _counted(call, indices_of(builder, matrix, pool.tokens), pool)
    weighted = _weighted(call, mode, counts)
    nothing = builder.broadcast(builder.constant(0, FLOAT32), (pool.columns, rows))
    result = put(builder, nothing, builder.constant(pool.indexes), weighted, "add")
    return builder.reshape(moves.transpose(builder, result, (1, 0)), shape)


def _pool(call: Call) -> _Pool:
    names, numbers = call.texts("pool_strings"), call.list("pool_int64s")
    if (names is None) == (numbers is None):
        raise LoweringError("one of pool_strings and pool_int64s must be given")
    flat = np.array(numbers, np.int64) if names is None else np.array(names, TEXT)
    tokens = sorted({*flat.tolist()})
    number_of = {token: number for number, token in enumerate(tokens)}
    starts = call.list("ngram_counts") or ()
    indexes = np.array(call.list("ngram_indexes") or (), np.int64)
    ends = (*starts[1:], len(flat))
    grams: list[tuple[int, ...]] = []
    for size, (start, end) in enumerate(zip(starts, ends, strict=False), 1):
        if not 0 <= start <= end <= len(flat) or (end - start) % size:
            raise ShapeError(f"ngram_counts {list(starts)} of a pool of {len(flat)}")
        grams.extend(
            tuple(number_of[element] for element in flat[begin : begin + size].tolist())
            for begin in range(start, end, size)
        )
    if len(grams) != len(indexes) or indexes.min(initial=0) < 0:
        raise ShapeError(f"{len(indexes)} ngram_indexes from 0 for {len(grams)} n-grams")
    if len({*grams}) != len(grams):
        raise LoweringError("the pool has an n-gram twice")
    return _Pool(np.array(tokens, flat.dtype), {g: n for n, g in enumerate(grams)}, indexes)


def _counted(call: Call, tokens: Tensor, pool: _Pool) -> Tensor:
    # (n-grams, rows): matches at every position and with every distance between tokens
    builder, (rows, length) = call.builder, tokens.shape
    least, most = call.number("min_gram_length"), call.number("max_gram_length")
    skips = call.number("max_skip_count")
    if not 1 <= least <= most or skips < 0:
        raise LoweringError(f"n-grams of {least} to {most} with at most {skips} skips")
    total = len(pool.grams)
    counts = builder.broadcast(builder.constant(0, INT64), ((total + 1) * rows, 1))
    row = builder.constant(np.arange(rows).reshape(rows, 1))
    longest = min(most, max(map(len, pool.grams), default=0), length)
    distances = min(skips, max(length - 1, 0)) + 1
    if distances * longest > _SCANS_MAX:
        raise LoweringError(f"{distances} distances of n-grams of up to {longest} are too many")
    steps = _prefixes(pool, longest)
    first = indices_of(builder, tokens, steps[0].pairs) if longest else None
    for distance in range(1, distances + 1):
        state = first
        for size in range(1, longest + 1):
            if (size - 1) * distance >= length or state is None:
                break
            if size > 1:
                state = _advanced(builder, tokens, state, steps[size - 1], (size - 1) * distance)
            # n-grams of one token have no distance, so they count once
            if size < least or (size == 1 and distance > 1):
                continue
            result = taken(builder, steps[size - 1].grams, state)
            indices = builder.add(builder.mul(result, rows), row)
            ones = builder.broadcast(builder.constant(1, INT64), (indices.size, 1))
            counts = put(builder, counts, indices, ones, "add")
    table = builder.reshape(counts, (total + 1, rows))
    return builder.cast(moves.slice_axis(builder, table, 0, 0, total), FLOAT32)


@dataclass(frozen=True, slots=True)
class _Step:
    pairs: Array
    """Pairs of the number of a prefix and a token, each as one number."""
    tokens: int
    grams: Array
    """The n-gram of each pair, or the number of n-grams if the pair is only a prefix."""


def _prefixes(pool: _Pool, longest: int) -> list[_Step]:
    steps = []
    before: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, longest + 1):
        prefixes = sorted({gram[:size] for gram in pool.grams if len(gram) >= size})
        count = len(pool.tokens) + 1
        pairs = [before[prefix[:-1]] * count + prefix[-1] for prefix in prefixes]
        grams = [pool.grams.get(prefix, len(pool.grams)) for prefix in prefixes]
        grams.append(len(pool.grams))
        steps.append(_Step(np.array(pairs, np.int64), count, np.array(grams, np.int64)))
        before = {prefix: number for number, prefix in enumerate(prefixes)}
    return steps


def _advanced(builder: Builder, tokens: Tensor, state: Tensor, step: _Step, offset: int) -> Tensor:
    width = tokens.shape[1] - offset
    following = moves.slice_axis(builder, tokens, 1, offset, tokens.shape[1])
    shorter = moves.slice_axis(builder, state, 1, 0, width)
    pairs = builder.add(builder.mul(shorter, step.tokens), following)
    return indices_of(builder, pairs, step.pairs)


def _weighted(call: Call, mode: str, counts: Tensor) -> Tensor:
    builder = call.builder
    if mode == "IDF":
        counts = builder.minimum(counts, 1)
    if mode == "TF" or call.attribute("weights") is None:
        return counts
    weights = reals(call, "weights")
    if len(weights) != counts.shape[0]:
        raise ShapeError(f"{len(weights)} weights of {counts.shape[0]} n-grams")
    return builder.mul(counts, builder.constant(weights.reshape(-1, 1)))
