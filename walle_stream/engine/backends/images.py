"""Decodes images on the host, with Pillow where it is installed."""

import struct
from importlib.util import find_spec
from io import BytesIO
from typing import Final

import numpy as np

from walle_stream.engine.program import Array

FORMATS: Final = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""What may be decoded; Pillow reads others, some of them by starting programs."""

_MODES: Final = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def can_decode() -> bool:
    """Whether Pillow is installed."""
    return find_spec("PIL") is not None


def decode_image(stream: Array, pixel_format: str) -> Array:
    """Decode a file (uint8) as RGB, BGR or Grayscale to uint8 ``(height, width, channels)``.

    It has no pixel where it cannot be decoded.
    """
    from PIL import Image  # noqa: PLC0415  # who decodes nothing does not need it

    mode = _MODES[pixel_format]
    try:
        with Image.open(BytesIO(stream.tobytes()), formats=FORMATS) as image:
            pixels = np.array(image.convert(mode), np.uint8)
    except (
        # Pillow's decoders raise these for a broken file. NotImplementedError is theirs, too: for a
        # kind of compression that they do not know
        OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, KeyError,
        NotImplementedError, OverflowError, struct.error, Image.DecompressionBombError,
    ):  # fmt: skip
        return np.zeros((0, 0, 1 if mode == "L" else 3), np.uint8)
    if pixel_format == "BGR":
        pixels = pixels[..., ::-1]
    return np.ascontiguousarray(pixels.reshape((*pixels.shape[:2], -1)))
