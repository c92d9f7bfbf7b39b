"""Activation functions.

Each is a function of a builder and a tensor, which the rules of recurrent networks also call.
Narrow floats are computed in float32 and rounded once.
"""

from collections.abc import Callable, Mapping
from math import pi, sqrt
from typing import Final, NamedTuple

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import require_numbers, widened
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.errors import DTypeError, LoweringError, ShapeError

type Function = Callable[..., Tensor]
"""Takes a builder, a tensor and parameters, and returns a tensor of the same shape and dtype."""


class Activation(NamedTuple):
    """A function, and the defaults of its alpha and beta, if it has these."""

    function: Function
    defaults: tuple[float, ...] = ()


def sigmoid(builder: Builder, x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``; an infinite power correctly gives 0."""
    power = builder.exp(builder.neg(x))
    return builder.div(1, builder.add(power, 1))


def softplus(builder: Builder, x: Tensor) -> Tensor:
    """Return ``log(exp(x) + 1)`` as ``max(x, 0) + log1p(exp(-|x|))``.

    The logarithm is computed as ``2 atanh(z / (2 + z))``, which is accurate for small z.
    """
    distance = builder.neg(builder.abs(x))
    small = builder.exp(distance)
    half = builder.unary(Operator.ATANH, builder.div(small, builder.add(small, 2)))
    return builder.add(builder.maximum(x, 0), builder.mul(half, 2))


def swish(builder: Builder, x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return ``x * sigmoid(alpha * x)`` for floating-point numbers."""
    scaled = builder.neg(x) if alpha == 1 else builder.mul(x, -alpha)
    return builder.div(x, builder.add(builder.exp(scaled), 1))


def _leaky_relu(builder: Builder, x: Tensor, alpha: float) -> Tensor:
    return _leaking(builder, x, builder.mul(x, alpha), is_flatter=0 < alpha <= 1)


def _leaking(builder: Builder, x: Tensor, scaled: Tensor, *, is_flatter: bool) -> Tensor:
    if is_flatter:
        return builder.maximum(x, scaled)
    return builder.select(builder.less(x, 0), scaled, x)


def _hard_sigmoid(builder: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return builder.clip(_affine(builder, x, alpha, beta), 0, 1)


def _affine(builder: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return builder.add(builder.mul(x, alpha), beta)


def _elu(builder: Builder, x: Tensor, alpha: float) -> Tensor:
    bent = builder.sub(builder.exp(x), 1)
    return builder.select(builder.less(x, 0), builder.mul(bent, alpha), x)


def _celu(builder: Builder, x: Tensor, alpha: float) -> Tensor:
    if not alpha:
        raise LoweringError("attribute 'alpha' must not be 0, since it is a divisor")
    power = builder.exp(x if alpha == 1 else builder.div(x, alpha))
    bent = builder.mul(builder.sub(power, 1), alpha)
    return builder.add(builder.maximum(x, 0), builder.minimum(bent, 0))


ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "Relu": Activation(lambda builder, x: builder.maximum(x, 0)),
    "Tanh": Activation(lambda builder, x: builder.tanh(x)),
    "Sigmoid": Activation(sigmoid),
    "Affine": Activation(_affine, (1, 0)),
    "LeakyRelu": Activation(_leaky_relu, (0.01,)),
    "ThresholdedRelu": Activation(
        lambda builder, x, alpha: builder.select(builder.less(alpha, x), x, 0), (1,)
    ),
    "ScaledTanh": Activation(
        lambda b, x, alpha, beta: b.mul(b.tanh(b.mul(x, beta)), alpha), (1, 1)
    ),
    "HardSigmoid": Activation(_hard_sigmoid, (0.2, 0.5)),
    "Elu": Activation(_elu, (1,)),
    "Softsign": Activation(lambda builder, x: builder.div(x, builder.add(builder.abs(x), 1))),
    "Softplus": Activation(softplus),
}

_OTHERS: Final[Mapping[str, Activation]] = {
    "Celu": Activation(_celu, (1.0,)),
    "HardSwish": Activation(
        lambda builder, x: builder.mul(x, _hard_sigmoid(builder, x, 1 / 6, 0.5))
    ),
    "Mish": Activation(lambda b, x: b.mul(x, b.tanh(softplus(b, x)))),
    "Swish": Activation(swish, (1.0,)),
}


@lowers(
    "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu", "Softsign", "Softplus", "Sigmoid",
    *_OTHERS,
)  # fmt: skip
def _named(call: Call) -> Result:
    function, defaults = {**ACTIVATIONS, **_OTHERS}[call.node.operator]
    names = zip(("alpha", "beta"), defaults, strict=False)
    parameters = [call.real(name, default) for name, default in names]
    builder, x = call.builder, call.tensor(0)
    return builder.cast(function(builder, widened(builder, x), *parameters), x.dtype)


@lowers("Relu")
def _relu(call: Call) -> Result:
    return call.builder.maximum(require_numbers(call.tensor(0)), 0)


@lowers("PRelu")
def _p_relu(call: Call) -> Result:
    x, slope, builder = call.tensor(0), call.tensor(1), call.builder
    if call.version < 7 and slope.rank == 1 and slope.size > 1 and x.rank > 1:  # noqa: PLR2004
        # one slope per channel: there was no broadcasting before opset 7
        slope = builder.reshape(slope, (slope.size, *(1,) * (x.rank - 2)))
    is_flatter = slope.data is not None and bool(((slope.data > 0) & (slope.data <= 1)).all())
    scaled = builder.mul(x, builder.broadcast(slope, x.shape))
    return _leaking(builder, x, scaled, is_flatter=is_flatter)


@lowers("Selu")
def _selu(call: Call) -> Result:
    # opset 6 gave the defaults more digits
    first, second = (1.6732, 1.0507) if call.version < 6 else (  # noqa: PLR2004
        1.67326319217681884765625, 1.05070102214813232421875,
    )  # fmt: skip
    alpha, gamma = call.real("alpha", first), call.real("gamma", second)
    builder, x = call.builder, widened(call.builder, call.tensor(0))
    # equals alpha e^x - alpha, but is more accurate
    bent = builder.mul(builder.sub(builder.exp(x), 1), alpha)
    result = builder.mul(builder.select(builder.less(0, x), x, bent), gamma)
    return builder.cast(result, call.tensor(0).dtype)


@lowers("SwiGLU")
def _swi_glu(call: Call) -> Result:
    gate, x, builder = call.tensor(0), call.tensor(1), call.builder
    alpha = call.real("alpha", 1.0)
    if gate.shape != x.shape:
        raise ShapeError(f"a gate of shape {list(gate.shape)} for shape {list(x.shape)}")
    if gate.dtype != x.dtype:
        raise DTypeError(f"a gate of {gate.dtype.name} for {x.dtype.name}")
    wide = widened(builder, gate)
    result = builder.mul(swish(builder, wide, alpha), builder.cast(x, wide.dtype))
    return builder.cast(result, gate.dtype)


@lowers("Gelu")
def _gelu(call: Call) -> Result:
    approximate = call.choice("approximate", ("none", "tanh"), "none")
    builder, x = call.builder, widened(call.builder, call.tensor(0))
    if approximate == "tanh":
        cube = builder.mul(builder.mul(x, x), x)
        inner = builder.add(x, builder.mul(cube, 0.044715))
        bent = builder.tanh(builder.mul(inner, sqrt(2 / pi)))
    else:
        bent = builder.erf(builder.mul(x, sqrt(0.5)))
    result = builder.mul(builder.mul(x, 0.5), builder.add(bent, 1))
    return builder.cast(result, call.tensor(0).dtype)
