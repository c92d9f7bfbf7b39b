import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, ShapeError

RNG = np.random.default_rng(5)


def run(operator, *inputs, version=28, **attributes):
    names = tuple("" if each is None else f"x{at}" for at, each in enumerate(inputs))
    given = {name: each for name, each in zip(names, inputs, strict=True) if name}
    node = Node(operator, names, ("y",), attributes, version=version)
    graph = Graph("test", dict.fromkeys(given), {"y": None}, (node,))
    return GraphRunner(graph, {}, Interpreter()).run(given)[0]


def parts(x):
    return np.stack([x.real, x.imag], -1)


def signal(*shape, is_complex=False):
    x = RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)
    return x if is_complex else x.real.astype(complex)


@pytest.mark.parametrize("axis", [0, 1, -2, -3])
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 3, 6, 11])
def test_dft_is_fft(axis, is_complex, inverse, length):
    x = signal(4, 6, is_complex=is_complex)
    given = parts(x) if is_complex else x.real[..., None]
    size = None if length is None else np.array(length)
    made = run("DFT", given, size, np.array(axis), inverse=inverse)
    along = axis if axis >= 0 else axis + 1
    expected = (np.fft.ifft if inverse else np.fft.fft)(x, length, along)
    assert np.allclose(made, parts(expected), atol=1e-12)


@pytest.mark.parametrize("length", [None, 4, 7, 8, 13])
def test_onesided_dft_is_rfft_and_irfft(length):
    x = signal(3, 8).real
    size = None if length is None else np.array(length)
    made = run("DFT", x[..., None], size, onesided=1)
    assert np.allclose(made, parts(np.fft.rfft(x, length)), atol=1e-12)
    half = signal(3, 5, is_complex=True)
    made = run("DFT", parts(half), size, onesided=1, inverse=1)
    assert np.allclose(made[..., 0], np.fft.irfft(half, length), atol=1e-12)
    assert made.shape[-1] == 1


def test_dft_before_opset_20_has_an_attribute():
    x = signal(2, 5, 3).real
    made = run("DFT", x[..., None], version=17)
    assert np.allclose(made, parts(np.fft.fft(x, axis=1)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_dft_of_narrow_floats_is_computed_in_float32(dtype):
    x = signal(64).real.astype(dtype)
    made = run("DFT", x[None, :, None])
    expected = parts(np.fft.fft(x.astype(np.float64)))[None].astype(dtype)
    assert made.dtype == dtype
    assert np.allclose(made.astype(float), expected.astype(float), rtol=1e-2, atol=1e-2)


def test_dft_keeps_its_digits_where_angles_are_large():
    x = signal(1000).real
    assert np.allclose(run("DFT", x[None, :, None])[0], parts(np.fft.fft(x)), atol=1e-10)


def test_dft_refuses_what_is_no_signal():
    with pytest.raises(ShapeError, match="its last axis is 1"):
        run("DFT", np.zeros((2, 4, 3)))
    with pytest.raises(ShapeError, match="the last axis holds"):
        run("DFT", np.zeros((2, 4, 1)), None, np.array(-1))
    with pytest.raises(ShapeError, match="length 0"):
        run("DFT", np.zeros((2, 4, 1)), np.array(0))
    with pytest.raises(ShapeError, match="the signal is real"):
        run("DFT", np.zeros((2, 4, 2)), onesided=1)
    with pytest.raises(DTypeError, match="int64"):
        run("DFT", np.zeros((2, 4, 1), np.int64))
    with pytest.raises(ShapeError, match="more than"):
        run("DFT", np.zeros((1, 4, 1)), np.array(2**40))
    assert run("DFT", np.zeros((0, 4, 1))).shape == (0, 4, 2)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("step", [1, 3, 8])
@pytest.mark.parametrize("windowed", [False, True])
def test_stft_is_the_dft_of_frames(is_complex, step, windowed):
    x = signal(2, 20, is_complex=is_complex)
    window = np.hanning(8) if windowed else None
    given = parts(x) if is_complex else x.real[..., None]
    size = None if windowed else np.array(8)
    made = run("STFT", given, np.array(step), window, size, onesided=int(not is_complex))
    frames = np.stack([x[:, at : at + 8] for at in range(0, 13, step)], 1)
    frames = frames * (window if windowed else 1)
    expected = np.fft.fft(frames) if is_complex else np.fft.rfft(frames.real)
    assert np.allclose(made, parts(expected), atol=1e-12)


def test_stft_refuses_frames_that_do_not_fit():
    x = np.zeros((1, 10, 1))
    with pytest.raises(ShapeError, match="frames of length 4 with step 0 for 10"):
        run("STFT", x, np.array(0), None, np.array(4))
    with pytest.raises(ShapeError, match="frames of length 11"):
        run("STFT", x, np.array(1), None, np.array(11))
    with pytest.raises(ShapeError, match="window"):
        run("STFT", x, np.array(1), np.ones(3), np.array(4))


WINDOWS = {"HannWindow": np.hanning, "BlackmanWindow": np.blackman}


@pytest.mark.parametrize("operator", WINDOWS)
@pytest.mark.parametrize("size", [1, 2, 9, 10])
def test_windows_are_numpys(operator, size):
    made = run(operator, np.array(size), periodic=0, output_datatype=11)
    assert np.allclose(made, WINDOWS[operator](size))
    made = run(operator, np.array(size), output_datatype=11)
    assert np.allclose(made, WINDOWS[operator](size + 1)[:-1])


def test_windows_of_no_size_and_of_other_dtypes():
    assert run("HammingWindow", np.array(0)).shape == (0,)
    assert run("HannWindow", np.array(5), output_datatype=10).dtype == np.float16
    with pytest.raises(ShapeError, match="negative size"):
        run("HannWindow", np.array(-1))


def test_mel_weights_are_triangles():
    made = run(
        "MelWeightMatrix",
        np.array(8),
        np.array(64),
        np.array(8192),
        np.array(10.0),
        np.array(4000.0),
    )
    assert made.shape == (33, 8)
    assert made.min() >= 0
    assert (made.max(0) == 1).all()


def test_mel_weights_refuse_another_scale():
    numbers = [np.array(8), np.array(64), np.array(8192), np.array(9.0), np.array(5.0)]
    with pytest.raises(ShapeError, match=r"from 9\.0 to 5\.0 Hz"):
        run("MelWeightMatrix", *numbers)
