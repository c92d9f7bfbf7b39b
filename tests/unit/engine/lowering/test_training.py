import numpy as np
import pytest

from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

_SHAPE = (3, 4, 2)


def _given():
    random = np.random.default_rng(2)
    scores = random.standard_normal(_SHAPE).astype(np.float32)
    return scores, random.integers(0, 4, (3, 2)), random.uniform(1, 2, 4).astype(np.float32)


def _wanted(scores, labels, weights, ignored, reduction):
    losses, total = np.zeros(labels.shape), 0.0
    for place in np.ndindex(*labels.shape):
        label = labels[place]
        if label != ignored:
            weight = 1.0 if weights is None else weights[label]
            losses[place] = -scores[place[0], label, place[1]] * weight
            total += weight
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / total}[reduction]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1, -7])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_losses_are_reduced(run_node, reduction, is_weighted, ignored, dtype):
    scores, labels, weights = _given()
    given = {"reduction": reduction.encode()}
    if ignored is not None:
        labels[0, 0] = given["ignore_index"] = ignored
    inputs = [scores, labels.astype(dtype), *([weights] if is_weighted else [])]
    wanted = _wanted(scores, labels, weights if is_weighted else None, ignored, reduction)
    (made,) = run_node("NegativeLogLikelihoodLoss", inputs, version=12, **given)
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_cross_entropy_also_gives_logarithms_of_shares(run_node):
    scores, labels, weights = _given()
    loss, shares = run_node("SoftmaxCrossEntropyLoss", [scores, labels, weights], outputs=2)
    wanted = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    np.testing.assert_allclose(shares, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, _wanted(wanted, labels, weights, None, "mean"), rtol=1e-5)


def test_an_ignored_label_hides_what_is_no_number(run_node):
    scores = np.array([[-np.inf, -1], [-2, -np.inf]], np.float32)
    weights = np.zeros(2, np.float32)
    (made,) = run_node(
        "NegativeLogLikelihoodLoss", [scores, np.array([-1, 0]), weights],
        ignore_index=-1, reduction=b"none",
    )  # fmt: skip
    np.testing.assert_array_equal(made, [0, 0])


def test_of_no_samples(run_node):
    scores, labels = np.zeros((0, 4), np.float16), np.zeros(0, np.int64)
    (made,) = run_node("NegativeLogLikelihoodLoss", [scores, labels], reduction=b"sum")
    assert (made, made.dtype) == (0, np.float16)
    assert np.isnan(run_node("NegativeLogLikelihoodLoss", [scores, labels])[0])


@pytest.mark.parametrize("label", [4, -1, 2**40])
def test_a_label_that_is_no_class_is_refused(run_node, label):
    scores, labels, _ = _given()
    labels[0, 0] = label
    with pytest.raises(EngineError, match=f"'it'.* index {label} is not in 0 .. 3"):
        run_node("NegativeLogLikelihoodLoss", [scores, labels])


@pytest.mark.parametrize(
    ("inputs", "given", "error", "words"),
    [
        ([(3,), (3,)], {}, ShapeError, "labels of shape"),
        ([(3, 4), (4,)], {}, ShapeError, "labels of shape"),
        ([(3, 4), (3,), (3,)], {}, ShapeError, "weights of shape"),
        ([(3, 4), (3,)], {"reduction": b"max"}, LoweringError, "'max'"),
    ],
)
def test_bad_input_is_named(run_node, inputs, given, error, words):
    dtypes = (np.float32, np.int64, np.float32)
    arrays = [np.zeros(shape, dtype) for shape, dtype in zip(inputs, dtypes, strict=False)]
    with pytest.raises(error, match=words):
        run_node("SoftmaxCrossEntropyLoss", arrays, **given)


def test_labels_are_whole_numbers(run_node):
    with pytest.raises(DTypeError, match="labels must be whole numbers"):
        run_node("NegativeLogLikelihoodLoss", [np.ones((1, 1)), np.ones(1)])


_DOMAIN = "ai.onnx.preview.training"


def _tensors(count, dtype=np.float32):
    random = np.random.default_rng(4)
    return [
        random.uniform(0.5, 1, shape).astype(dtype)
        for _ in range(count)
        for shape in ((2,), (3, 1))
    ]


def _run(run_node, operator, inputs, outputs, **given):
    return run_node(operator, inputs, outputs=outputs, version=1, domain=_DOMAIN, **given)


@pytest.mark.parametrize("count", [0, 3])
def test_adagrad(run_node, count):
    tensors, rate = _tensors(3), np.float32(0.1)
    given = {"norm_coefficient": 0.5, "decay_factor": 0.25, "epsilon": 1e-3}
    made = _run(run_node, "Adagrad", [rate, np.array(count), *tensors], 4, **given)
    for number in range(2):
        x, slope, squares = tensors[number::2]
        slope = 0.5 * x + slope
        added = squares + slope * slope
        step = 0.1 / (1 + count * 0.25) * slope / (np.sqrt(added) + 1e-3)
        np.testing.assert_allclose(made[number], x - step, rtol=1e-5)
        np.testing.assert_allclose(made[2 + number], added, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("post", [0.0, 0.5])
def test_adam(run_node, count, post):
    tensors, rate = _tensors(4, np.float64), np.float32(0.5)
    given = {"norm_coefficient": 0.5, "norm_coefficient_post": post, "alpha": 0.75, "beta": 0.5}
    made = _run(run_node, "Adam", [rate, np.array(count), *tensors], 6, **given)
    for number in range(2):
        x, slope, momentum, squares = tensors[number::2]
        slope = 0.5 * x + slope
        mean, square = 0.75 * momentum + 0.25 * slope, 0.5 * squares + 0.5 * slope**2
        adjusted = 0.5 * (np.sqrt(1 - 0.5**count) / (1 - 0.75**count) if count else 1)
        wanted = (x - adjusted * mean / (np.sqrt(square) + 1e-6)) * (1 - post)
        np.testing.assert_allclose(made[number], wanted)
        np.testing.assert_allclose(made[2 + number], mean)
        np.testing.assert_allclose(made[4 + number], square)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("mode", [b"standard", b"nesterov"])
def test_momentum(run_node, count, mode):
    tensors, rate = _tensors(3), np.float32(0.1)
    given = {"norm_coefficient": 0.5, "alpha": 0.25, "beta": 0.75, "mode": mode}
    made = _run(run_node, "Momentum", [rate, np.array([count]), *tensors], 4, **given)
    for number in range(2):
        x, slope, momentum = tensors[number::2]
        slope = 0.5 * x + slope
        new = 0.25 * momentum + (0.75 if count else 1) * slope
        step = new if mode == b"standard" else slope + 0.25 * new
        np.testing.assert_allclose(made[number], x - 0.1 * step, rtol=1e-5)
        np.testing.assert_allclose(made[2 + number], new, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "given", "error", "words"),
    [
        ([np.ones(())] * 4, {}, LoweringError, "2 tensors are not 3 for each"),
        ([np.ones(())] * 2, {}, LoweringError, "0 tensors are not 3 for each"),
        ([np.ones(2)] + [np.ones(())] * 4, {}, ShapeError, "input 0 .* is not a scalar"),
        ([np.ones(())] * 4 + [np.ones(1)], {}, ShapeError, "is not of shape"),
        ([np.ones((), np.int64)] * 5, {}, DTypeError, "not int64"),
        ([np.ones(())] * 5, {"mode": b"heavy"}, LoweringError, "'mode' is 'heavy'"),
        ([np.ones(())] * 5, {"alpha": b"x"}, LoweringError, "'alpha' must be a number"),
    ],
)
def test_bad_input_is_named_of_optimizers(run_node, inputs, given, error, words):
    kept = {"norm_coefficient": 0.0, "alpha": 0.5, "beta": 0.5, "mode": b"standard", **given}
    with pytest.raises(error, match=words):
        _run(run_node, "Momentum", inputs, 2, **kept)
