"""Optimizers: several tensors at once, the first update, and what is refused."""

import numpy as np
import pytest

from walle_stream.errors import DTypeError, LoweringError, ShapeError

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
        ([np.ones(2)] + [np.ones(())] * 4, {}, ShapeError, "input 0 .* is no scalar"),
        ([np.ones(())] * 4 + [np.ones(1)], {}, ShapeError, "has another one"),
        ([np.ones((), np.int64)] * 5, {}, DTypeError, "not int64"),
        ([np.ones(())] * 5, {"mode": b"heavy"}, LoweringError, "mode 'heavy'"),
        ([np.ones(())] * 5, {"alpha": b"x"}, LoweringError, "'alpha' must be a number"),
    ],
)
def test_bad_input_is_named(run_node, inputs, given, error, words):
    kept = {"norm_coefficient": 0.0, "alpha": 0.5, "beta": 0.5, "mode": b"standard", **given}
    with pytest.raises(error, match=words):
        _run(run_node, "Momentum", inputs, 2, **kept)
