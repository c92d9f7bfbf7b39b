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


def multiclass_probability(r):
    # libsvm's function of this name, line by line
    k = len(r)
    q = [[sum(r[j][t] ** 2 for j in range(k) if j != t) if t == i else -r[i][t] * r[t][i]
          for i in range(k)] for t in range(k)]  # fmt: skip
    p = [1 / k] * k
    for sweeps in range(max(100, k)):
        qp = [sum(q[t][j] * p[j] for j in range(k)) for t in range(k)]
        pqp = sum(p[t] * qp[t] for t in range(k))
        if max(abs(qp[t] - pqp) for t in range(k)) < 0.005 / k:
            return p, sweeps
        for t in range(k):
            diff = (-qp[t] + pqp) / q[t][t]
            p[t] += diff
            pqp = (pqp + diff * (diff * q[t][t] + 2 * qp[t])) / (1 + diff) / (1 + diff)
            for j in range(k):
                qp[j] = (qp[j] + diff * q[t][j]) / (1 + diff)
                p[j] /= 1 + diff
    return p, max(100, k)


def coupled(scores, a, b):
    # for rows of scores of pairs: probabilities of classes, and the sweeps of each row
    classes = round((1 + math.sqrt(1 + 8 * scores.shape[1])) / 2)
    rows, sweeps = [], []
    for row in np.clip(1 / (1 + np.exp(scores * a + b)), 1e-7, 1 - 1e-7).tolist():
        r = np.zeros((classes, classes))
        for first, (i, j) in zip(row, itertools.combinations(range(classes), 2), strict=True):
            r[i, j], r[j, i] = first, 1 - first
        p, count = multiclass_probability(r.tolist())
        rows.append(p)
        sweeps.append(count)
    return np.array(rows), sweeps


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_libsvms(run_node, kind, classes):
    pairs = classes * (classes - 1) // 2
    a, b = np.array([-1.5, -2, -0.5])[:pairs], np.array([0.25, 0.5, 0.75])[:pairs]
    labels, scores = classified(run_node, classes, kind, prob_a=floats(a), prob_b=floats(b))
    want, _ = coupled(pair_scores(kind, classes), a, b)
    np.testing.assert_allclose(scores, want, rtol=0, atol=2e-6)
    assert labels.tolist() == classified(run_node, classes, kind)[0].tolist()


def coupling(classes, scores, **given):
    # pair (i, j) has the score of column number: a support vector for each pair and class
    pairs = [*itertools.combinations(range(classes), 2)]
    vectors, coefficients = np.zeros((0, len(pairs))), np.zeros((classes - 1, 0))
    for label in range(classes):
        own = [number for number, pair in enumerate(pairs) if pair[0] == label]
        rows = np.zeros((classes - 1, len(own)))
        for column, number in enumerate(own):
            rows[pairs[number][1] - 1, column] = 1
        vectors = np.concatenate([vectors, np.eye(len(pairs))[own]])
        coefficients = np.concatenate([coefficients, rows], 1)
    return {
        "vectors_per_class": tuple(range(classes - 1, -1, -1)), "rho": (0.0,) * len(pairs),
        "support_vectors": floats(vectors), "coefficients": floats(coefficients),
        "prob_a": (-1.0,) * len(pairs), "prob_b": (0.0,) * len(pairs),
        "classlabels_ints": tuple(range(classes)), **given,
    }, scores.astype(np.float32)  # fmt: skip


@pytest.mark.parametrize("classes", [2, 4, 9])
@pytest.mark.parametrize("scale", [0.01, 1, 30])
def test_each_row_ends_after_its_own_number_of_sweeps(run_node, classes, scale):
    drawn = RNG.standard_normal((40, classes * (classes - 1) // 2)) * scale
    given, x = coupling(classes, drawn)
    _, scores = run_node("SVMClassifier", [x], domain=ML, outputs=2, **given)
    want, sweeps = coupled(x.astype(np.float64), -1.0, 0.0)
    np.testing.assert_allclose(scores, want, rtol=0, atol=1e-6)
    assert len(set(sweeps)) > (classes > 2 and scale >= 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_no_rows_and_of_rows_of_nan(run_node, classes):
    given, x = coupling(classes, np.zeros((0, classes * (classes - 1) // 2)))
    _, scores = run_node("SVMClassifier", [x], domain=ML, outputs=2, **given)
    assert scores.shape == (0, classes)
    unsure = np.full((1, x.shape[1]), np.nan, np.float32)
    _, scores = run_node("SVMClassifier", [unsure], domain=ML, outputs=2, **given)
    np.testing.assert_allclose(scores, 1 / classes)


def test_labels_alone_need_no_probabilities(run_node, count_steps):
    given, x = coupling(3, RNG.standard_normal((5, 3)))
    both = run_node("SVMClassifier", [x], domain=ML, outputs=2, **given)
    alone = run_node("SVMClassifier", [x], domain=ML, outputs=1, **given)
    np.testing.assert_array_equal(alone[0], both[0])
    steps = [count_steps("SVMClassifier", [x], domain=ML, outputs=n, **given) for n in (1, 2)]
    assert steps[0] < steps[1]


def test_pairs_without_both_numbers_of_platt_are_refused(run_node):
    given, x = coupling(3, np.zeros((1, 3)), prob_a=(-1.0,) * 2)
    with pytest.raises(EngineError, match=r"SVMClassifier.*2 prob_a and 3 prob_b of 3 pairs"):
        run_node("SVMClassifier", [x], domain=ML, outputs=2, **given)


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
