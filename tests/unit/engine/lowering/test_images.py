import io

import numpy as np
import pytest

from walle_stream.engine.backends.interpreter import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, LoweringError, ShapeError

RULES = "walle_stream.engine.lowering.images"


def decoded(stream, **attributes):
    node = Node("ImageDecoder", ("x",), ("y",), attributes, version=20)
    graph = Graph("test", {"x": None}, {"y": None}, (node,))
    return GraphRunner(graph, {}, Interpreter()).run({"x": stream})[0]


def test_without_pillow_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(f"{RULES}.can_decode", lambda: False)
    with pytest.raises(LoweringError, match="pip install pillow"):
        decoded(np.zeros(3, np.uint8))


def test_other_streams_and_formats_are_refused():
    with pytest.raises(DTypeError, match="uint8, not int64"):
        decoded(np.zeros(3, np.int64))
    with pytest.raises(ShapeError, match="one axis, not 2"):
        decoded(np.zeros((3, 1), np.uint8))
    with pytest.raises(LoweringError, match="'pixel_format' is 'CMYK'"):
        decoded(np.zeros(3, np.uint8), pixel_format=b"CMYK")


@pytest.mark.parametrize("pixels", ["RGB", "BGR", "Grayscale"])
def test_a_lossless_image_is_decoded_as_it_was(pixels):
    image = pytest.importorskip("PIL.Image")
    x = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 9
    file = io.BytesIO()
    image.fromarray(x).save(file, "PNG")
    made = decoded(np.frombuffer(file.getvalue(), np.uint8), pixel_format=pixels.encode())
    if pixels == "Grayscale":
        assert made.shape == (2, 3, 1)
    else:
        assert np.array_equal(made, x if pixels == "RGB" else x[..., ::-1])


@pytest.mark.parametrize("stream", [b"", b"no image", b"\x89PNG\r\n\x1a\n\x00\x00", b"GIF89a"])
def test_what_is_no_image_has_no_pixels(stream):
    pytest.importorskip("PIL.Image")
    assert decoded(np.frombuffer(stream, np.uint8)).shape == (0, 0, 3)
