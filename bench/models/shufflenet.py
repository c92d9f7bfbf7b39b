"""ShuffleNetV2 of width 1.0 (Ma 2018)."""

from typing import Final

import numpy as np

from models.drawing import Drawing, Drawn

_STAGES: Final = ((116, 4), (232, 8), (464, 4))
"""Channels and blocks."""

_LAST: Final = 1024


def shufflenet_v2(seed: int, side: int = 224, classes: int = 1000) -> Drawn:
    """Draw ShuffleNetV2.

    Args:
        seed: Of the weights.
        side: Of the image, a multiple of 32.
        classes: That it tells apart.
    """
    drawing = Drawing("shufflenet_v2", seed)
    x = _dense(drawing, drawing.input("image", (1, 3, side, side)), 3, 24, 3, stride=2)
    x = drawing.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels, size = 24, side // 4
    for count, blocks in _STAGES:
        half, size = count // 2, size // 2
        left = _dense(drawing, _deep(drawing, x, channels, 2), channels, half, 1)
        right = _right(drawing, x, channels, half, 2)
        x, channels = _shuffled(drawing, left, right, count, size), count
        split = drawing.constant([half, half], np.int64)
        for _ in range(blocks - 1):
            left, right = drawing.nodes("Split", x, split, count=2, axis=1)
            x = _shuffled(drawing, left, _right(drawing, right, half, half, 1), count, size)
    x = _dense(drawing, x, channels, _LAST, 1)
    x = drawing.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    drawing.output(drawing.dense(x, _LAST, classes), "scores", (1, classes))
    return drawing.drawn()


def _dense(  # as Conv
    drawing: Drawing, x: str, channels: int, count: int, kernel: int, *, stride: int = 1
) -> str:
    made = drawing.convolution(x, channels, count, (kernel, kernel), stride=stride)
    return drawing.node("Relu", drawing.batch_normalization(made, count))


def _deep(drawing: Drawing, x: str, channels: int, stride: int) -> str:
    made = drawing.convolution(
        x, channels, channels, (3, 3), stride=stride, group=channels, gain=1.0
    )
    return drawing.batch_normalization(made, channels)


def _right(drawing: Drawing, x: str, channels: int, half: int, stride: int) -> str:
    x = _deep(drawing, _dense(drawing, x, channels, half, 1), half, stride)
    return _dense(drawing, x, half, half, 1)


def _shuffled(drawing: Drawing, left: str, right: str, count: int, size: int) -> str:
    x = drawing.node("Concat", left, right, axis=1)
    split = drawing.constant([1, 2, count // 2, size, size], np.int64)
    x = drawing.node("Transpose", drawing.node("Reshape", x, split), perm=[0, 2, 1, 3, 4])
    return drawing.node("Reshape", x, drawing.constant([1, count, size, size], np.int64))
