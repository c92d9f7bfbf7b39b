"""Operations on strings and encoded images, which the host runs for every backend."""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final

import numpy as np

from walle_stream.engine.program import Array
from walle_stream.engine.rules import TEXT


def compute_text(inputs: Sequence[Array], parameters: Mapping[str, Any]) -> list[Array]:
    """Run one operation on strings, whose arrays have the dtype ``object``.

    The parameter ``name`` selects the operation, and ``shape`` and ``dtype`` describe its output.
    The other parameters belong to the operation.
    """
    own = {key: value for key, value in parameters.items() if key not in {"shape", "dtype"}}
    return [_OPERATIONS[own.pop("name")](*inputs, **own)]


def _concat(x: Array, y: Array) -> Array:
    return np.asarray(x + y, TEXT)


def _split(x: Array, delimiter: str | None, count: int) -> Array:
    rows = [text.split(delimiter, count) for text in x.reshape(-1)]
    width = max(map(len, rows), default=0)
    result = np.full((len(rows), width), "", TEXT)
    for number, row in enumerate(rows):
        result[number, : len(row)] = row
    return result.reshape((*x.shape, width))


def _split_count(x: Array, delimiter: str | None, count: int) -> Array:
    counts = [len(text.split(delimiter, count)) for text in x.reshape(-1)]
    return np.array(counts, np.int64).reshape(x.shape)


def _normalize(x: Array, stopwords: frozenset[str], is_case_sensitive: bool, case: str) -> Array:
    kept = [
        text
        for text in x.reshape(-1)
        if (text if is_case_sensitive else text.lower()) not in stopwords
    ]
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case, str)
    result = np.array([change(word) for word in kept] or [""], TEXT)
    return result.reshape((*x.shape[:-1], -1))


def _match(x: Array, pattern: str) -> Array:
    compiled = re.compile(pattern)
    result = [compiled.fullmatch(text) is not None for text in x.reshape(-1)]
    return np.array(result, np.bool_).reshape(x.shape)


def _lookup(x: Array, table: Mapping[str, int]) -> Array:
    missing = len(table)
    value = [table.get(text, missing) for text in x.reshape(-1)]
    return np.array(value, np.int64).reshape(x.shape)


FORMATS: Final = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""Formats that may be decoded; for some of the others Pillow would start external programs."""

_MODES: Final = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def can_decode() -> bool:
    """Whether Pillow is installed."""
    return find_spec("PIL") is not None


def decode_image(stream: Array, pixel_format: str) -> Array:
    """Decode a file (uint8) as RGB, BGR or Grayscale to uint8 ``(height, width, channels)``.

    The result has no pixels if the file cannot be decoded.
    """
    from PIL import Image  # noqa: PLC0415  # an optional package

    mode = _MODES[pixel_format]
    try:
        with Image.open(BytesIO(stream.tobytes()), formats=FORMATS) as image:
            pixels = np.array(image.convert(mode), np.uint8)
    except (
        # Pillow's decoders raise all of these for a broken file or an unknown compression
        OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, KeyError,
        NotImplementedError, OverflowError, struct.error, Image.DecompressionBombError,
    ):  # fmt: skip
        return np.zeros((0, 0, 1 if mode == "L" else 3), np.uint8)
    if pixel_format == "BGR":
        pixels = pixels[..., ::-1]
    return np.ascontiguousarray(pixels.reshape((*pixels.shape[:2], -1)))


_OPERATIONS: Final[dict[str, Callable[..., Array]]] = {
    "concat": _concat,
    "split": _split,
    "split_count": _split_count,
    "normalize": _normalize,
    "match": _match,
    "lookup": _lookup,
    "decode_image": decode_image,
}
"""``lookup`` returns the position of each element in a table, or the table's size."""
