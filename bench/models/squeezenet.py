"""SqueezeNet 1.1 (Iandola 2016)."""

from typing import Final

from models.drawing import Drawing, Drawn

_FIRES: Final = (
    (16, 64), (16, 64), None, (32, 128), (32, 128), None,
    (48, 192), (48, 192), (64, 256), (64, 256),
)  # fmt: skip
"""Channels that a module squeezes to, and expands to twice; None: a pool."""


def squeezenet(seed: int, side: int = 224, classes: int = 1000) -> Drawn:
    """Draw SqueezeNet 1.1."""
    drawing = Drawing("squeezenet", seed)

    def layer(x: str, channels: int, count: int, kernel: int) -> str:
        made = drawing.convolution(x, channels, count, (kernel, kernel), bias=True)
        return drawing.node("Relu", made)

    def pool(x: str) -> str:
        return drawing.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)

    image = drawing.input("image", (1, 3, side, side))
    weights = drawing.normal((64, 3, 3, 3), (2 / 27) ** 0.5)
    # the one convolution without a border
    x = drawing.node(
        "Conv", image, weights, drawing.normal((64,), 0.05), kernel_shape=[3, 3], strides=[2, 2]
    )
    x, channels = pool(drawing.node("Relu", x)), 64
    for fire in _FIRES:
        if fire is None:
            x = pool(x)
            continue
        narrow, wide = fire
        squeezed = layer(x, channels, narrow, 1)
        parts = layer(squeezed, narrow, wide, 1), layer(squeezed, narrow, wide, 3)
        x, channels = drawing.node("Concat", *parts, axis=1), 2 * wide
    x = drawing.node("GlobalAveragePool", layer(x, channels, classes, 1))
    drawing.output(drawing.node("Flatten", x, axis=1), "scores", (1, classes))
    return drawing.drawn()
