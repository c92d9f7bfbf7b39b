"""Operators of ONNX's own domain on strings, and ImageDecoder, which all run on the host."""

import numpy as np

from walle_stream.engine.backends.text import can_decode
from walle_stream.engine.lowering.builder import common_shape
from walle_stream.engine.lowering.patterns import translated
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import BOOL, INT64, TEXT
from walle_stream.errors import DTypeError, LoweringError, ShapeError


def _strings(call: Call, number: int) -> Tensor:
    x = call.tensor(number)
    if x.dtype != TEXT:
        raise DTypeError(f"input {number} must have strings, not {x.dtype.name}")
    return x


@lowers("StringConcat")
def _string_concat(call: Call) -> Result:
    x, y, builder = _strings(call, 0), _strings(call, 1), call.builder
    shape = common_shape(x.shape, y.shape)
    spread = [builder.broadcast(operand, shape) for operand in (x, y)]
    return builder.text("concat", spread, shape, TEXT)


@lowers("StringSplit")
def _string_split(call: Call) -> Result:
    x, builder = _strings(call, 0), call.builder
    count = -1 if call.attribute("maxsplit") is None else call.number("maxsplit")
    parameters = {"delimiter": call.text("delimiter", "") or None, "count": count}
    # the largest number of parts is known only after a run, unless there are no strings
    parts = builder.text("split", [x], None if x.size else (*x.shape, 0), TEXT, **parameters)
    if not call.wants(1):
        return parts
    return parts, builder.text("split_count", [x], x.shape, INT64, **parameters)


@lowers("StringNormalizer")
def _string_normalizer(call: Call) -> Result:
    x = _strings(call, 0)
    if not (x.rank == 1 or (x.rank == 2 and x.shape[0] == 1)):  # noqa: PLR2004  # [C] or [1, C]
        raise ShapeError(f"shape {list(x.shape)} is neither [C] nor [1, C]")
    case = call.choice("case_change_action", ("LOWER", "UPPER", "NONE"), "NONE")
    is_case_sensitive = bool(call.number("is_case_sensitive", 0))
    words = call.texts("stopwords") or ()
    return call.builder.text(
        "normalize",
        [x],
        None if words and x.size else (*x.shape[:-1], max(x.shape[-1], 1)),
        TEXT,
        stopwords=frozenset(word if is_case_sensitive else word.lower() for word in words),
        is_case_sensitive=is_case_sensitive,
        case=case,
    )


@lowers("RegexFullMatch")
def _regex_full_match(call: Call) -> Result:
    x = _strings(call, 0)
    pattern = translated(call.text("pattern"))
    return call.builder.text("match", [x], x.shape, BOOL, pattern=pattern)


@lowers("ImageDecoder")
def _image_decoder(call: Call) -> Result:
    stream = call.tensor(0)
    pixels = call.choice("pixel_format", ("RGB", "BGR", "Grayscale"), "RGB")
    if stream.dtype != np.dtype(np.uint8):
        raise DTypeError(f"an encoded image must be uint8, not {stream.dtype.name}")
    if stream.rank != 1:
        raise ShapeError(f"an encoded image must have one axis, not {stream.rank}")
    if not can_decode():
        raise LoweringError("decoding images needs the package Pillow: pip install pillow")
    return call.builder.text("decode_image", [stream], None, stream.dtype, pixel_format=pixels)
