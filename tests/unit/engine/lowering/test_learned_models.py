"""Linear models and support vectors of ai.onnx.ml, row by row."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest

from walle_stream.errors import EngineError

ML = "ai.onnx.ml"
RNG = np.random.default_rng(11)
X = RNG.standard_normal((6, 4)).astype(np.float32)
TRANSFORMS = (b"NONE", b"LOGISTIC", b"SOFTMAX", b"SOFTMAX_ZERO", b"PROBIT")


def floats(values):
    return tuple(float(each) for each in np.ravel(values).astype(np.float32))


def softmax(scores):
    power = np.exp(scores - scores.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def softmax_zero(scores):
    made = []
    for row in scores:
        power = [
            math.exp(v - row.max()) if abs(v) > 1e-7 else v * math.exp(-row.max()) for v in row
        ]
        made.append([each / sum(power) if sum(power) else 0.5 for each in power])
    return np.array(made)


def probit(scores):
    return np.vectorize(NormalDist().inv_cdf)(scores)


FUNCTIONS = dict(
    zip(
        TRANSFORMS,
        (lambda s: s, lambda s: 1 / (1 + np.exp(-s)), softmax, softmax_zero, probit),
        strict=True,
    )
)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_linear_scores_are_transformed(run_node, transform, dtype):
    x = (X * 3).astype(dtype)
    small = 0.01 if transform == b"PROBIT" else 1
    weights, base = RNG.standard_normal((3, 4)) * small, np.array([0.3, 0.5, 0.7])
    labels, scores = run_node(
        "LinearClassifier", [x], outputs=2, domain=ML, coefficients=floats(weights),
        intercepts=floats(base), classlabels_strings=(b"a", b"b", b"c"), post_transform=transform,
    )  # fmt: skip
    raw = x.astype(np.float64) @ weights.astype("f4").T + base.astype("f4")
    np.testing.assert_allclose(scores, FUNCTIONS[transform](raw), rtol=1e-4, atol=1e-5)
    assert labels.tolist() == ["abc"[each] for each in raw.argmax(1)]
    assert scores.dtype == np.float32


def test_zero_scores_are_apart_in_softmax_zero(run_node):
    given = {"coefficients": (0.0, 0.0, 1.0), "intercepts": (0.0, 0.0, 0.0), "outputs": 2}
    x = np.array([[2.0], [0.0]], np.float32)
    _, scores = run_node(
        "LinearClassifier", [x], domain=ML, classlabels_ints=(1, 2, 3),
        post_transform=b"SOFTMAX_ZERO", **given,
    )  # fmt: skip
    assert scores.tolist() == [[0, 0, 1], [0.5, 0.5, 0.5]]


def test_probit_is_the_inverse_of_the_normal_distribution(run_node):
    x = np.array([[1e-6], [0.001], [0.3], [0.5], [0.999], [0], [1], [2]], np.float64)
    (made,) = run_node(
        "LinearRegressor", [x], domain=ML, coefficients=(1.0,), post_transform=b"PROBIT"
    )
    np.testing.assert_allclose(made[:5], probit(x[:5]), rtol=2e-3, atol=1e-6)
    np.testing.assert_array_equal(made[5:], [[-np.inf], [np.inf], [np.nan]])


@pytest.mark.parametrize("transform", [b"NONE", b"LOGISTIC", b"SOFTMAX"])
def test_one_score_of_two_classes_has_two_sides(run_node, transform):
    weights = RNG.standard_normal(4)
    labels, scores = run_node(
        "LinearClassifier", [X], outputs=2, domain=ML, coefficients=floats(weights),
        intercepts=(0.1,), classlabels_ints=(7, 9), post_transform=transform,
    )  # fmt: skip
    score = (X @ weights.astype("f4") + 0.1)[:, None]
    want = FUNCTIONS[transform](np.concatenate([-score, score], 1))
    np.testing.assert_allclose(scores, want, rtol=1e-5, atol=1e-6)
    assert labels.tolist() == np.where(score[:, 0] > 0, 9, 7).tolist()


@pytest.mark.parametrize(("transform", "threshold"), [(b"NONE", 0.0), (b"LOGISTIC", 0.5)])
def test_one_class_is_there_or_not(run_node, transform, threshold):
    labels, scores = run_node(
        "LinearClassifier", [X], outputs=2, domain=ML, coefficients=(1.0, 0.0, 0.0, 0.0),
        classlabels_strings=(b"yes",), post_transform=transform,
    )  # fmt: skip
    assert labels.tolist() == ["yes" if each >= threshold else "" for each in scores[:, 0]]


def test_targets_are_regressed(run_node):
    weights = RNG.standard_normal((2, 4))
    (made,) = run_node(
        "LinearRegressor", [X], domain=ML, coefficients=floats(weights), targets=2,
        intercepts=(1.0, 2.0),
    )  # fmt: skip
    np.testing.assert_allclose(made, X @ weights.T + [1, 2], rtol=1e-4, atol=1e-5)


GAMMA, OFFSET, DEGREE = 0.25, 0.5, 3.0
KERNELS = {
    b"LINEAR": np.dot,
    b"POLY": lambda a, b: (GAMMA * np.dot(a, b) + OFFSET) ** DEGREE,
    b"SIGMOID": lambda a, b: np.tanh(GAMMA * np.dot(a, b) + OFFSET),
    b"RBF": lambda a, b: np.exp(-GAMMA * ((a - b) ** 2).sum()),
}
VECTORS = RNG.standard_normal((9, 4)).astype(np.float32)
COEFFICIENTS = RNG.standard_normal((2, 9)).astype(np.float32)
RHO = np.array([0.3, -0.1, 0.2], np.float32)


def kernels(kind):
    return np.array([[KERNELS[kind](x, v) for v in VECTORS] for x in X.astype(np.float64)])


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_a_regression_of_support_vectors(run_node, kind, one_class):
    (made,) = run_node(
        "SVMRegressor", [X], domain=ML, kernel_type=kind, n_supports=9, one_class=one_class,
        kernel_params=(GAMMA, OFFSET, DEGREE), support_vectors=floats(VECTORS),
        coefficients=floats(COEFFICIENTS[0]), rho=(0.3,),
    )  # fmt: skip
    want = kernels(kind) @ COEFFICIENTS[0] + RHO[0]
    want = np.where(want > 0, 1, -1) if one_class else want
    np.testing.assert_allclose(made[:, 0], want, rtol=1e-4, atol=1e-5)


def test_distances_are_right_far_from_the_origin(run_node):
    x = np.float32([[1000.25, 1000]])
    (made,) = run_node(
        "SVMRegressor", [x], domain=ML, kernel_type=b"RBF", n_supports=1, rho=(0.0,),
        kernel_params=(1.0, 0.0, 0.0), support_vectors=(1000.0, 1000.0), coefficients=(1.0,),
    )  # fmt: skip
    np.testing.assert_allclose(made, [[math.exp(-0.0625)]], rtol=1e-6)


SPANS = {3: (2, 3, 4), 2: (4, 5)}


def pair_scores(kind, classes):
    spans = np.split(np.arange(9), np.cumsum(SPANS[classes])[:-1])
    found = kernels(kind)
    columns = []
    for number, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        columns.append(
            found[:, spans[i]] @ COEFFICIENTS[j - 1, spans[i]]
            + found[:, spans[j]] @ COEFFICIENTS[i, spans[j]]
            + RHO[number]
        )
    return np.array(columns).T


def classified(run_node, classes, kind, **given):
    pairs = classes * (classes - 1) // 2
    return run_node(
        "SVMClassifier", [X], outputs=2, domain=ML, kernel_type=kind,
        kernel_params=(GAMMA, OFFSET, DEGREE), support_vectors=floats(VECTORS),
        coefficients=floats(COEFFICIENTS[: classes - 1]), rho=floats(RHO[:pairs]),
        vectors_per_class=SPANS[classes], classlabels_ints=(5, 6, 7)[:classes], **given,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("classes", [2, 3])
def test_pairs_of_classes_vote(run_node, kind, classes):
    labels, scores = classified(run_node, classes, kind)
    want = pair_scores(kind, classes)
    sides = np.concatenate([-want, want], 1) if classes == 2 else want
    np.testing.assert_allclose(scores, sides, rtol=1e-4, atol=1e-5)
    votes = np.zeros((len(X), classes))
    for number, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        votes[:, i] += want[:, number] > 0
        votes[:, j] += want[:, number] <= 0
    assert labels.tolist() == (5 + votes.argmax(1)).tolist()


def test_probabilities_of_pairs_are_coupled(run_node):
    a, b = np.float32([-1, -2, -0.5]), np.float32([0.1, 0.2, 0.3])
    _, scores = classified(run_node, 3, b"RBF", prob_a=floats(a), prob_b=floats(b))
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-6)
    pairs = 1 / (1 + np.exp(pair_scores(b"RBF", 3) * a + b))
    for row, made in zip(pairs, scores.astype(np.float64), strict=True):
        r = np.zeros((3, 3))
        for number, (i, j) in enumerate(itertools.combinations(range(3), 2)):
            r[i, j], r[j, i] = row[number], 1 - row[number]

        def loss(p, r=r):
            return sum(
                (r[j, i] * p[i] - r[i, j] * p[j]) ** 2 for i in range(3) for j in range(3) if i != j
            )

        steps = [np.eye(3)[i] - np.eye(3)[j] for i in range(3) for j in range(3) if i != j]
        assert all(loss(made) <= loss(made + 1e-3 * step) for step in steps)


def test_the_probability_of_a_pair_is_platts(run_node):
    _, scores = classified(run_node, 2, b"LINEAR", prob_a=(-1.5,), prob_b=(0.25,))
    first = 1 / (1 + np.exp(pair_scores(b"LINEAR", 2) * -1.5 + 0.25))
    np.testing.assert_allclose(scores, np.concatenate([first, 1 - first], 1), rtol=1e-4)


def test_a_classifier_without_support_vectors_is_linear(run_node):
    weights = RNG.standard_normal((3, 4))
    labels, scores = run_node(
        "SVMClassifier", [X], outputs=2, domain=ML, coefficients=floats(weights), rho=(0.5,),
        classlabels_strings=(b"a", b"b", b"c"),
    )  # fmt: skip
    np.testing.assert_allclose(scores, X @ weights.T + 0.5, rtol=1e-4, atol=1e-5)
    assert labels.tolist() == ["abc"[each] for each in scores.argmax(1)]


@pytest.mark.parametrize("shape", [(0, 4), (4,)])
def test_no_rows_and_one_row(run_node, shape):
    given = {"domain": ML, "outputs": 2, "coefficients": floats(np.ones(12))}
    x = np.ones(shape, np.float32)
    rows = 1 if len(shape) == 1 else 0
    _, scores = run_node("LinearClassifier", [x], classlabels_ints=(1, 2, 3), **given)
    assert scores.shape == (rows, 3)
    _, scores = run_node("SVMClassifier", [x], classlabels_ints=(1, 2, 3), rho=(0.0,), **given)
    assert scores.shape == (rows, 3)


SVM = {"support_vectors": (1.0,) * 8, "coefficients": (1.0, 1.0), "rho": (0.0,)}


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        ("LinearClassifier", {}),
        ("LinearClassifier", {"coefficients": (1.0,) * 7}),
        ("LinearClassifier", {"coefficients": (1.0,) * 8, "intercepts": (1.0,)}),
        ("LinearClassifier", {"coefficients": (1.0,) * 8, "classlabels_ints": (1,)}),
        ("LinearClassifier", {"coefficients": (1.0,) * 8, "post_transform": b"SIN"}),
        ("LinearClassifier", {"coefficients": (1.0,) * 8, "classlabels_ints": (1, 2),
                              "classlabels_strings": (b"a", b"b")}),
        ("LinearRegressor", {"coefficients": (1.0,) * 4, "targets": 0}),
        ("LinearRegressor", {"coefficients": (1.0,) * 5}),
        ("SVMRegressor", {**SVM, "n_supports": 3}),
        ("SVMRegressor", {**SVM, "n_supports": 2, "rho": ()}),
        ("SVMRegressor", {**SVM, "n_supports": 2, "kernel_type": b"COSINE"}),
        ("SVMRegressor", {**SVM, "n_supports": 2, "kernel_params": (1.0,)}),
        ("SVMRegressor", {**SVM, "n_supports": 1 << 40}),
        ("SVMClassifier", {**SVM, "vectors_per_class": (1, 1)}),
        ("SVMClassifier", {**SVM, "vectors_per_class": (3, -1), "classlabels_ints": (1, 2)}),
        ("SVMClassifier", {**SVM, "vectors_per_class": (1, 1), "classlabels_ints": (1, 2),
                           "prob_a": (1.0,)}),
        ("SVMClassifier", {"coefficients": (1.0,)}),
    ],
)  # fmt: skip
def test_wrong_models_are_refused(run_node, operator, given):
    with pytest.raises(EngineError):
        run_node(operator, [X], domain=ML, outputs=1 + operator.endswith("Classifier"), **given)
