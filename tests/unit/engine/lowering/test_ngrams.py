"""TfIdfVectorizer, against a search through every place."""

import numpy as np
import pytest

from walle_stream.errors import EngineError

POOL = ((0,), (1,), (3,), (0, 1), (1, 1), (2, 3), (4, 1), (0, 1, 2), (1, 1, 1))
FLAT = tuple(each for gram in POOL for each in gram)
GIVEN = {"ngram_counts": (0, 3, 11), "ngram_indexes": (8, 7, 6, 5, 4, 3, 2, 1, 0), "mode": b"TF"}


def counted(x, least, most, skips):
    made = np.zeros((len(x), len(POOL)), int)
    for number, gram in enumerate(POOL):
        if not least <= len(gram) <= most:
            continue
        for distance in range(1, skips + 2 if len(gram) > 1 else 2):
            for row, tokens in enumerate(x.tolist()):
                last = len(tokens) - (len(gram) - 1) * distance
                for start in range(max(last, 0)):
                    seen = tuple(tokens[start + k * distance] for k in range(len(gram)))
                    made[row, GIVEN["ngram_indexes"][number]] += seen == gram
    return made


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("skips", [0, 1, 5, 100])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 3), (2, 2), (2, 3), (3, 9)])
def test_n_grams_are_counted(run_node, least, most, skips, strings):
    x = np.random.default_rng(skips).integers(0, 6, (3, 11))
    pool = {"pool_int64s": FLAT}
    given = x
    if strings:
        pool = {"pool_strings": tuple(str(each).encode() for each in FLAT)}
        given = x.astype(str).astype(object)
    lengths = {"min_gram_length": least, "max_gram_length": most, "max_skip_count": skips}
    (made,) = run_node("TfIdfVectorizer", [given], **GIVEN, **pool, **lengths)
    np.testing.assert_array_equal(made, counted(x, least, most, skips))


@pytest.mark.parametrize("mode", [b"TF", b"IDF", b"TFIDF"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_counts_are_weighted(run_node, mode, dtype):
    x = np.array([1, 1, 1, 0, 1, 5], dtype)
    weights = tuple(float(each) for each in range(1, 10))
    given = {**GIVEN, "mode": mode, "pool_int64s": FLAT, "weights": weights}
    (made,) = run_node(
        "TfIdfVectorizer", [x], **given, min_gram_length=1, max_gram_length=3, max_skip_count=0
    )
    counts = counted(x[None], 1, 3, 0)[0].astype(float)
    counts = np.minimum(counts, 1) if mode == b"IDF" else counts
    by_column = np.array(weights)[::-1]
    np.testing.assert_array_equal(made, counts if mode == b"TF" else counts * by_column)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_without_tokens_there_are_no_n_grams(run_node, shape):
    lengths = {"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 2}
    (made,) = run_node(
        "TfIdfVectorizer", [np.empty(shape, np.int64)], **GIVEN, pool_int64s=FLAT, **lengths
    )
    assert made.shape == (*shape[:-1], 9)
    assert not made.any()


@pytest.mark.parametrize(
    ("x", "changed"),
    [
        (np.zeros((2, 2, 2), np.int64), {}),
        (np.zeros(3), {}),
        (np.zeros(3, np.int64), {"mode": b"XX"}),
        (np.zeros(3, np.int64), {"pool_int64s": None}),
        (np.zeros(3, np.int64), {"pool_strings": (b"a",)}),
        (np.zeros(3, np.int64), {"ngram_counts": (0, 4)}),
        (np.zeros(3, np.int64), {"ngram_counts": (5, 2)}),
        (np.zeros(3, np.int64), {"ngram_indexes": (0, 1)}),
        (np.zeros(3, np.int64), {"ngram_indexes": (-1,) * 9}),
        (np.zeros(3, np.int64), {"ngram_indexes": (1 << 60,) * 9}),
        (np.zeros(3, np.int64), {"mode": b"IDF", "weights": (1.0,)}),
        (np.zeros(3, np.int64), {"min_gram_length": 0}),
        (np.zeros(3, np.int64), {"max_gram_length": 0}),
        (np.zeros(3, np.int64), {"max_skip_count": -1}),
        (np.zeros(10_000, np.int64), {"max_skip_count": 1 << 40}),
        (np.zeros(3, np.int64), {"pool_int64s": (0,) * 17}),
    ],
)
def test_wrong_calls_are_refused(run_node, x, changed):
    given = {**GIVEN, "pool_int64s": FLAT, "min_gram_length": 1, "max_gram_length": 3,
             "max_skip_count": 0, **changed}  # fmt: skip
    with pytest.raises(EngineError):
        run_node("TfIdfVectorizer", [x], **{k: v for k, v in given.items() if v is not None})
