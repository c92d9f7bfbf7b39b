"""ImageDecoder: done by the host, as operations on strings are."""

import numpy as np

from walle_stream.engine.backends.images import can_decode
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_FORMATS = ("RGB", "BGR", "Grayscale")


@lowers("ImageDecoder")
def _image_decoder(call: Call) -> Result:
    stream, pixels = call.tensor(0), call.text("pixel_format", "RGB")
    if stream.dtype != np.dtype(np.uint8):
        raise DTypeError(f"an encoded image is of uint8, not {stream.dtype.name}")
    if stream.rank != 1:
        raise ShapeError(f"an encoded image has one axis, not {stream.rank}")
    if pixels not in _FORMATS:
        raise LoweringError(
            f"attribute 'pixel_format' is {pixels!r}, none of {', '.join(_FORMATS)}"
        )
    if not can_decode():
        raise LoweringError("images are decoded by the package Pillow: pip install pillow")
    return call.builder.text("decode_image", [stream], None, stream.dtype, pixel_format=pixels)
