"""ResNet-18 and -50 (He 2015), with the stride in the 3x3 convolution as exporters have it."""

from collections.abc import Sequence
from typing import Final

from models.drawing import Drawing, Drawn

_BRANCH_GAIN: Final = 0.3
"""Of the last normalization of a branch: sums over many blocks stay small."""


def resnet18(seed: int, side: int = 224, classes: int = 1000) -> Drawn:
    """Draw ResNet-18."""
    return _resnet("resnet18", seed, side, classes, (2, 2, 2, 2), is_deep=False)


def resnet50(seed: int, side: int = 224, classes: int = 1000) -> Drawn:
    """Draw ResNet-50; see ``resnet18``."""
    return _resnet("resnet50", seed, side, classes, (3, 4, 6, 3), is_deep=True)


def _resnet(  # once a caller
    name: str, seed: int, side: int, classes: int, blocks: Sequence[int], *, is_deep: bool
) -> Drawn:
    drawing = Drawing(name, seed)
    x = drawing.input("image", (1, 3, side, side))
    x = _normal(drawing, x, 3, 64, 7, stride=2)
    x = drawing.node("Relu", x)
    x = drawing.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        out = 4 * width if is_deep else width
        for number in range(count):
            stride = 2 if number == 0 and stage else 1
            branch = (
                _bottleneck(drawing, x, channels, width, stride)
                if is_deep
                else _basic(drawing, x, channels, width, stride)
            )
            if number == 0 and (stride > 1 or channels != out):
                x = _normal(drawing, x, channels, out, 1, stride=stride, gain=0.7)
            x = drawing.node("Relu", drawing.node("Add", branch, x))
            channels = out
    x = drawing.node("Flatten", drawing.node("GlobalAveragePool", x), axis=1)
    drawing.output(drawing.dense(x, channels, classes), "scores", (1, classes))
    return drawing.drawn()


def _normal(  # as Conv
    drawing: Drawing, x: str, channels: int, count: int, kernel: int, *, stride: int = 1,
    gain: float = 1.0,
) -> str:  # fmt: skip
    made = drawing.convolution(x, channels, count, (kernel, kernel), stride=stride)
    return drawing.batch_normalization(made, count, gain)


def _basic(drawing: Drawing, x: str, channels: int, width: int, stride: int) -> str:
    x = drawing.node("Relu", _normal(drawing, x, channels, width, 3, stride=stride))
    return _normal(drawing, x, width, width, 3, gain=_BRANCH_GAIN)


def _bottleneck(drawing: Drawing, x: str, channels: int, width: int, stride: int) -> str:
    x = drawing.node("Relu", _normal(drawing, x, channels, width, 1))
    x = drawing.node("Relu", _normal(drawing, x, width, width, 3, stride=stride))
    return _normal(drawing, x, width, 4 * width, 1, gain=_BRANCH_GAIN)
