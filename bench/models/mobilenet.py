"""MobileNetV2 (Sandler 2018)."""

from typing import Final

from models.drawing import Drawing, Drawn

_STAGES: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks, and stride of the first of them."""

_LAST: Final = 1280


def mobilenet_v2(seed: int, side: int = 224, classes: int = 1000) -> Drawn:
    """Draw MobileNetV2."""
    drawing = Drawing("mobilenet_v2", seed)
    limits = drawing.constant(0.0), drawing.constant(6.0)

    def layer(  # as Conv
        x: str, channels: int, count: int, kernel: int, *, stride: int = 1, group: int = 1
    ) -> str:
        size = (kernel, kernel)
        made = drawing.convolution(x, channels, count, size, stride=stride, group=group)
        return drawing.node("Clip", drawing.batch_normalization(made, count), *limits)

    x = layer(drawing.input("image", (1, 3, side, side)), 3, 32, 3, stride=2)
    channels = 32
    for expansion, count, blocks, first in _STAGES:
        for number in range(blocks):
            stride, wide, whole = (first if number == 0 else 1), channels * expansion, x
            if expansion > 1:
                x = layer(x, channels, wide, 1)
            x = layer(x, wide, wide, 3, stride=stride, group=wide)
            x = drawing.convolution(x, wide, count, (1, 1), gain=1.0)
            x = drawing.batch_normalization(x, count, 0.7)
            if stride == 1 and channels == count:
                x = drawing.node("Add", whole, x)
            channels = count
    x = layer(x, channels, _LAST, 1)
    x = drawing.node("Flatten", drawing.node("GlobalAveragePool", x), axis=1)
    drawing.output(drawing.dense(x, _LAST, classes), "scores", (1, classes))
    return drawing.drawn()
