"""DIN, the deep interest network (Zhou 2018): attention of an item over what a user did before."""

from typing import Final

import numpy as np

from models.drawing import Drawing, Drawn

_UNIT: Final = (80, 40)
"""Widths of the attention unit."""

_TOWER: Final = (200, 80)


def din(seed: int, batch: int = 1, length: int = 100, width: int = 32) -> Drawn:
    """Draw DIN."""
    drawing = Drawing("din", seed)
    behaviours = drawing.input("behaviours", (batch, length, width))
    target = drawing.input("target", (batch, width))
    rows = drawing.node("Unsqueeze", target, drawing.constant([1], np.int64))
    asked = drawing.node("Expand", rows, drawing.constant([batch, length, width], np.int64))
    x = drawing.node(
        "Concat", asked, behaviours, drawing.node("Sub", asked, behaviours),
        drawing.node("Mul", asked, behaviours), axis=-1,
    )  # fmt: skip
    channels = 4 * width
    # rows: an engine that takes the second axis for channels is right as well
    x = drawing.node("Reshape", x, drawing.constant([batch * length, channels], np.int64))
    for count in _UNIT:
        x, channels = _dense(drawing, x, channels, count), count
        x = drawing.node("PRelu", x, drawing.uniform((count,), 0.1, 0.4))
    weights = _dense(drawing, x, channels, 1)
    weights = drawing.node("Reshape", weights, drawing.constant([batch, 1, length], np.int64))
    weights = drawing.node("Mul", weights, drawing.constant(1 / length))
    interest = drawing.node("MatMul", weights, behaviours)
    interest = drawing.node("Squeeze", interest, drawing.constant([1], np.int64))
    x, channels = drawing.node("Concat", interest, target, axis=-1), 2 * width
    for count in _TOWER:
        x, channels = _dice(drawing, _dense(drawing, x, channels, count), count), count
    x = drawing.node("Softmax", _dense(drawing, x, channels, 2), axis=-1)
    drawing.output(x, "shares", (batch, 2))
    return drawing.drawn()


def _dense(drawing: Drawing, x: str, channels: int, count: int) -> str:
    weights = drawing.normal((channels, count), (2 / channels) ** 0.5)
    made = drawing.node("MatMul", x, weights)
    return drawing.node("Add", made, drawing.normal((count,), 0.05))


def _dice(drawing: Drawing, x: str, channels: int) -> str:
    """Draw ``p x + (1 - p) a x`` where ``p`` says how likely ``x`` is above what is usual."""
    share = drawing.node("Sigmoid", drawing.batch_normalization(x, channels))
    rest = drawing.node("Sub", drawing.constant(1.0), share)
    slope = drawing.node("Mul", drawing.uniform((channels,), 0.1, 0.4), x)
    return drawing.node("Add", drawing.node("Mul", share, x), drawing.node("Mul", rest, slope))
