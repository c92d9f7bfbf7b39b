"""BERT (Devlin 2018) with the head of SQuAD, in the nodes that exporters write."""

from typing import NamedTuple

import numpy as np

from models.drawing import Drawing, Drawn


class Sizes(NamedTuple):
    """Of a BERT; the defaults are base."""

    tokens: int = 256
    layers: int = 12
    width: int = 768
    heads: int = 12
    words: int = 30522
    is_decomposed: bool = False
    """Whether layer normalization is in the nodes of opset 16 and before."""


def bert(seed: int, sizes: Sizes | None = None) -> Drawn:
    """Draw a BERT.

    Args:
        seed: Of the weights.
        sizes: Of it; None: base.
    """
    return _Bert(seed, sizes or Sizes()).drawn()


class _Bert:
    def __init__(self, seed: int, sizes: Sizes) -> None:
        self._sizes = sizes
        self._drawing = Drawing("bert", seed)
        self._shape = (1, sizes.tokens, sizes.width)

    def drawn(self) -> Drawn:
        sizes, draw = self._sizes, self._drawing
        given = (1, sizes.tokens)
        words = draw.input("input_ids", given, below=sizes.words)
        # all tokens are seen: MNN's exp of a masked score is a denormal number, ten times as slow
        mask = draw.input("input_mask", given, below=2, least=1)
        segments = draw.input("segment_ids", given, below=2)
        x = draw.node("Gather", draw.normal((sizes.words, sizes.width), 0.02), words)
        x = draw.node("Add", x, draw.node("Gather", draw.normal((2, sizes.width), 0.02), segments))
        x = self._normalized(draw.node("Add", x, draw.normal(self._shape, 0.02)))
        hidden = self._hidden(mask)
        for _ in range(sizes.layers):
            x = self._normalized(draw.node("Add", self._attended(x, hidden), x))
            wide = self._gelu(self._dense(x, sizes.width, 4 * sizes.width))
            narrow = self._dense(wide, 4 * sizes.width, sizes.width)
            x = self._normalized(draw.node("Add", narrow, x))
        halves = self._whole(1, 1)
        scores = draw.nodes("Split", self._dense(x, sizes.width, 2), halves, count=2, axis=2)
        for name, each in zip(("start", "end"), scores, strict=True):
            draw.output(draw.node("Squeeze", each, self._whole(2)), name, given)
        return draw.drawn()

    def _whole(self, *numbers: int) -> str:
        return self._drawing.constant(numbers, np.int64)

    def _dense(self, x: str, channels: int, count: int) -> str:
        draw = self._drawing
        made = draw.node("MatMul", x, draw.normal((channels, count), channels**-0.5))
        return draw.node("Add", draw.normal((count,), 0.02), made)

    def _hidden(self, mask: str) -> str:
        """Draw what is added to the scores of tokens that are masked."""
        draw = self._drawing
        seen = draw.node("Cast", draw.node("Unsqueeze", mask, self._whole(1, 2)), to=1)
        return draw.node(
            "Mul", draw.node("Sub", draw.constant(1.0), seen), draw.constant(-10_000.0)
        )

    def _attended(self, x: str, hidden: str) -> str:
        draw, sizes = self._drawing, self._sizes
        each = sizes.width // sizes.heads
        split = self._whole(1, sizes.tokens, sizes.heads, each)

        def part(*order: int) -> str:
            made = draw.node("Reshape", self._dense(x, sizes.width, sizes.width), split)
            return draw.node("Transpose", made, perm=order)

        query, key, value = part(0, 2, 1, 3), part(0, 2, 3, 1), part(0, 2, 1, 3)
        scores = draw.node("Div", draw.node("MatMul", query, key), draw.constant(each**0.5))
        shares = draw.node("Softmax", draw.node("Add", scores, hidden), axis=-1)
        seen = draw.node("Transpose", draw.node("MatMul", shares, value), perm=[0, 2, 1, 3])
        seen = draw.node("Reshape", seen, self._whole(*self._shape))
        return self._dense(seen, sizes.width, sizes.width)

    def _gelu(self, x: str) -> str:
        draw = self._drawing
        error = draw.node("Erf", draw.node("Div", x, draw.constant(2**0.5)))
        made = draw.node("Mul", x, draw.node("Add", error, draw.constant(1.0)))
        return draw.node("Mul", made, draw.constant(0.5))

    def _normalized(self, x: str) -> str:
        draw, width = self._drawing, self._sizes.width
        scale, bias = draw.normal((width,), 0.1, 1.0), draw.normal((width,), 0.1)
        if not self._sizes.is_decomposed:
            return draw.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)
        centred = draw.node("Sub", x, draw.node("ReduceMean", x, axes=[-1]))
        square = draw.node("Pow", centred, draw.constant(2.0))
        variance = draw.node("ReduceMean", square, axes=[-1])
        root = draw.node("Sqrt", draw.node("Add", variance, draw.constant(1e-12)))
        made = draw.node("Mul", draw.node("Div", centred, root), scale)
        return draw.node("Add", made, bias)
