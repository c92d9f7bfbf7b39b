"""VoxelMorph (Balakrishnan 2019): a 3-D U-Net whose flow moves one image onto another."""

from typing import Final

import numpy as np

from models.drawing import Drawing, Drawn

_DOWN: Final = (16, 32, 32, 32)
_UP: Final = (32, 32, 32, 32)
_LAST: Final = (32, 16, 16)

_FLOW: Final = 0.02
"""Gain of the flow: some voxels at most."""


def voxelmorph(seed: int, side: int = 64) -> Drawn:
    """Draw VoxelMorph.

    Args:
        seed: Of the weights.
        side: Of the images, a multiple of 16.
    """
    # GridSample has known three axes since then
    drawing = Drawing("voxelmorph", seed, opset=20)
    moving = drawing.input("moving", (1, 1, side, side, side))
    fixed = drawing.input("fixed", (1, 1, side, side, side))
    x, channels = drawing.node("Concat", moving, fixed, axis=1), 2
    levels = [(x, channels)]
    for count in _DOWN:
        x, channels = _layer(drawing, x, channels, count, stride=2), count
        levels.append((x, channels))
    levels.pop()
    for count in _UP:
        x = _layer(drawing, x, channels, count)
        skipped, more = levels.pop()
        x = drawing.node("Concat", _doubled(drawing, x), skipped, axis=1)
        channels = count + more
    for count in _LAST:
        x, channels = _layer(drawing, x, channels, count), count
    flow = drawing.convolution(x, channels, 3, (3, 3, 3), bias=True, gain=_FLOW)
    drawing.output(flow, "flow", (1, 3, side, side, side))
    drawing.output(_moved(drawing, moving, flow, side), "moved", (1, 1, side, side, side))
    return drawing.drawn()


def _layer(drawing: Drawing, x: str, channels: int, count: int, stride: int = 1) -> str:
    made = drawing.convolution(x, channels, count, (3, 3, 3), stride=stride, bias=True)
    return drawing.node("LeakyRelu", made, alpha=0.2)


def _doubled(drawing: Drawing, x: str) -> str:
    scales = drawing.constant([1, 1, 2, 2, 2])
    return drawing.node(
        "Resize", x, "", scales, mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip


def _moved(drawing: Drawing, image: str, flow: str, side: int) -> str:
    """Draw the spatial transformer: places as GridSample has them, x first, from -1 to 1."""
    axes = np.meshgrid(*[np.arange(side, dtype=np.float32)] * 3, indexing="ij")
    places = drawing.node("Add", drawing.constant(np.stack(axes)[None]), flow)
    scaled = drawing.node("Div", places, drawing.constant(float(side - 1)))
    centred = drawing.node("Sub", scaled, drawing.constant(0.5))
    grid = drawing.node("Mul", centred, drawing.constant(2.0))
    last = drawing.node("Transpose", grid, perm=[0, 2, 3, 4, 1])
    order = drawing.constant([2, 1, 0], np.int64)
    turned = drawing.node("Gather", last, order, axis=4)
    return drawing.node(
        "GridSample", image, turned, mode="linear", padding_mode="zeros", align_corners=1
    )
