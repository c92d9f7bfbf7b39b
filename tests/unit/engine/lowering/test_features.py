"""Encoders and features of ai.onnx.ml, and places in tables."""

import numpy as np
import pytest

from walle_stream.engine.backends.reference import compute
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.lookups import indices_of
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

ML = "ai.onnx.ml"
NAN = float("nan")


def text(*values):
    return np.array(values, object)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100])
@pytest.mark.parametrize("dtype", ["int64", "float32", "int16", "object"])
def test_places_are_those_of_a_dictionary(count, dtype):
    rng = np.random.default_rng(count)
    keys = rng.integers(-50, 50, count)
    x = rng.integers(-60, 60, (4, 50))
    if dtype == "object":
        keys, x = keys.astype(str).astype(object), x.astype(str).astype(object)
    else:
        keys, x = keys.astype(dtype), x.astype(dtype)
    builder = Builder(compute)
    found = builder.value(indices_of(builder, builder.constant(x), keys))
    known = {key: number for number, key in enumerate(keys.tolist())}
    want = [[known.get(each, count) for each in row] for row in x.tolist()]
    assert found.tolist() == want


def test_the_ends_of_a_dtype_are_found():
    limits = np.iinfo(np.int64)
    keys = np.array([limits.max, 5, limits.min])
    builder = Builder(compute)
    found = indices_of(builder, builder.constant(np.array([limits.min, limits.max, 0])), keys)
    assert builder.value(found).tolist() == [2, 0, 3]


@pytest.mark.parametrize(
    ("x", "attributes", "expected"),
    [
        (text("b", "z"), {"classes_strings": (b"a", b"b")}, [1, -1]),
        (np.array([1, 7, -1]), {"classes_strings": (b"a", b"b")}, ["b", "_Unused", "_Unused"]),
    ],
)
def test_the_first_label_encoder_knew_classes(run_node, x, attributes, expected):
    (made,) = run_node("LabelEncoder", [x], domain=ML, version=1, **attributes)
    assert made.tolist() == expected


@pytest.mark.parametrize(
    ("x", "attributes", "expected"),
    [
        (text("b", "z"), {"keys_strings": (b"a", b"b"), "values_int64s": (5, 6)}, [6, -1]),
        (np.float32([1, NAN, 3]), {"keys_floats": (NAN, 1.0), "values_strings": (b"n", b"o")},
         ["o", "n", "_Unused"]),
        (np.array([1, 2]), {"keys_int64s": (1, 1), "values_floats": (0.5, 2.5), "default_float": 9.0},
         [2.5, 9.0]),
        (np.int16([4, 5]), {"keys_tensor": np.int16([4]), "values_tensor": np.float64([0.1]),
                            "default_tensor": np.float64([7])}, [0.1, 7]),
    ],
)  # fmt: skip
def test_labels_are_mapped(run_node, x, attributes, expected):
    (made,) = run_node("LabelEncoder", [x], domain=ML, version=4, **attributes)
    assert made.tolist() == expected


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"keys_int64s": (1,)}, LoweringError),
        ({"keys_int64s": (1,), "keys_floats": (1.0,), "values_int64s": (1,)}, LoweringError),
        ({"keys_int64s": (1, 2), "values_int64s": (1,)}, ShapeError),
        ({"keys_strings": (b"a",), "values_int64s": (1,)}, DTypeError),
        ({"keys_int64s": (1,), "values_int64s": (1,), "default_tensor": np.ones(2)}, LoweringError),
        ({"keys_int64s": (1,), "values_int64s": (1,), "default_tensor": np.ones(1)}, DTypeError),
        ({"keys_tensor": 5, "values_int64s": (1,)}, LoweringError),
    ],
)
def test_wrong_label_encoders_are_refused(run_node, attributes, error):
    with pytest.raises(error):
        run_node("LabelEncoder", [np.array([1])], domain=ML, version=4, **attributes)


def test_categories_are_mapped_both_ways(run_node):
    maps = {"cats_int64s": (10, 20), "cats_strings": (b"x", b"y")}
    (made,) = run_node("CategoryMapper", [text("y", "q")], domain=ML, default_int64=-7, **maps)
    assert made.tolist() == [20, -7]
    (made,) = run_node("CategoryMapper", [np.array([10, 1])], domain=ML, **maps)
    assert made.tolist() == ["x", "_Unused"]


@pytest.mark.parametrize("x", [np.ones(2), np.ones(2, np.int64)])
def test_a_wrong_category_mapper_is_refused(run_node, x):
    with pytest.raises((DTypeError, ShapeError)):
        run_node("CategoryMapper", [x], domain=ML, cats_int64s=(1,))


def test_ones_stand_among_zeros(run_node):
    x = np.array([[3.0, 1.0]], np.float32)
    (made,) = run_node("OneHotEncoder", [x], domain=ML, cats_int64s=(1, 2, 3))
    assert made.tolist() == [[[0, 0, 1], [1, 0, 0]]]
    (made,) = run_node("OneHotEncoder", [text("b")], domain=ML, cats_strings=(b"a", b"b"))
    assert made.tolist() == [[0, 1]]


def test_an_unknown_category_is_zeros_or_refused(run_node):
    given = {"domain": ML, "cats_int64s": (1, 2)}
    assert run_node("OneHotEncoder", [np.array([5])], **given)[0].tolist() == [[0, 0]]
    with pytest.raises(EngineError):
        run_node("OneHotEncoder", [np.array([5])], zeros=0, **given)


def test_features_are_extracted(run_node):
    x = np.arange(12).reshape(2, 2, 3)
    (made,) = run_node("ArrayFeatureExtractor", [x, np.array([[2, 0]])], domain=ML)
    np.testing.assert_array_equal(made, x[..., [2, 0]])
    (made,) = run_node("ArrayFeatureExtractor", [text("a", "b"), np.array([1])], domain=ML)
    assert made.tolist() == [["b"]]


def test_a_feature_that_there_is_not_is_refused(run_node):
    with pytest.raises(EngineError):
        run_node("ArrayFeatureExtractor", [np.ones(3), np.array([3])], domain=ML)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("threshold", [0.5, -0.5, -1.0, 1e30, -1e30, NAN])
def test_a_threshold_makes_ones(run_node, dtype, threshold):
    x = np.arange(-3, 4).astype(dtype)
    (made,) = run_node("Binarizer", [x], domain=ML, threshold=threshold)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, x.astype(float) > threshold)


def test_features_are_joined(run_node):
    parts = [np.ones((2, 2), np.int64), np.full((2, 3), 2.0)]
    (made,) = run_node("FeatureVectorizer", parts, domain=ML, inputdimensions=(3, 1))
    assert made.tolist() == [[1, 1, 0, 2]] * 2
    (made,) = run_node("FeatureVectorizer", [np.arange(3)], domain=ML)
    assert made.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("x", "attributes", "expected"),
    [
        (np.float32([[NAN, 1], [2, NAN]]),
         {"imputed_value_floats": (5.0, 6.0), "replaced_value_float": NAN}, [[5, 1], [2, 6]]),
        (np.array([[-1, 1]]), {"imputed_value_int64s": (9,), "replaced_value_int64": -1}, [[9, 1]]),
    ],
)  # fmt: skip
def test_missing_values_are_replaced(run_node, x, attributes, expected):
    (made,) = run_node("Imputer", [x], domain=ML, **attributes)
    assert made.tolist() == expected


@pytest.mark.parametrize(
    ("norm", "length"),
    [(b"MAX", lambda x: np.abs(x).max(-1)), (b"L1", lambda x: np.abs(x).sum(-1)),
     (b"L2", lambda x: np.sqrt((x * x).sum(-1)))],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(3, 2), (2,), (0, 3)])
def test_rows_are_normalised(run_node, norm, length, shape):
    x = np.linspace(-1, 2, int(np.prod(shape))).reshape(shape)
    (made,) = run_node("Normalizer", [x], domain=ML, norm=norm)
    np.testing.assert_allclose(made, x / length(x)[..., None], rtol=1e-6)


def test_a_row_of_zeros_stays(run_node):
    assert run_node("Normalizer", [np.zeros((1, 2))], domain=ML, norm=b"L2")[0].tolist() == [[0, 0]]


@pytest.mark.parametrize("dtype", ["int64", "float64", "float32"])
def test_features_are_scaled(run_node, dtype):
    x = np.array([[1, 2], [3, 4]], dtype)
    (made,) = run_node("Scaler", [x], domain=ML, offset=(1.0, 2.0), scale=(0.5,))
    assert made.dtype == np.float32
    assert made.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Scaler", [np.ones((2, 3))], {"scale": (1.0, 2.0)}),
        ("Scaler", [text("a")], {"scale": (1.0,)}),
        ("Scaler", [np.ones(2)], {"scale": b"x"}),
        ("Normalizer", [np.ones((2, 3))], {"norm": b"L3"}),
        ("Normalizer", [np.ones((2, 3, 4))], {}),
        ("Imputer", [np.ones((2, 3))], {}),
        ("Imputer", [np.ones((2, 3))], {"imputed_value_floats": (1.0, 2.0)}),
        ("FeatureVectorizer", [np.ones((2, 3, 4))], {}),
        ("FeatureVectorizer", [np.ones((2, 3))], {"inputdimensions": (1, 2)}),
        ("FeatureVectorizer", [np.ones((2, 3))], {"inputdimensions": (1 << 40,)}),
        ("FeatureVectorizer", [], {}),
        ("ArrayFeatureExtractor", [np.float32(1), np.array([0])], {}),
        ("ArrayFeatureExtractor", [np.ones(3), np.ones(1)], {}),
        ("OneHotEncoder", [np.ones(3)], {}),
        ("OneHotEncoder", [text("a")], {"cats_int64s": (1,)}),
        ("OneHotEncoder", [np.ones(3)], {"cats_strings": (b"a",)}),
        ("Binarizer", [text("a")], {}),
    ],
)
def test_wrong_calls_are_refused(run_node, operator, inputs, attributes):
    with pytest.raises(EngineError):
        run_node(operator, inputs, domain=ML, **attributes)
