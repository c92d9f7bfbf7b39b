"""The zoo of real models: its manifest, its inputs, and what counts as equal; nothing is downloaded."""

import hashlib
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra `onnx` is missing")

from onnx import TensorProto, helper  # noqa: E402 - an extra

from tests.zoo.download import DownloadError, cache_folder, fetch, model_path, unpack  # noqa: E402
from tests.zoo.inputs import drawn  # noqa: E402 - same
from tests.zoo.manifest import Archive, Draw, ZooModel, read_manifest  # noqa: E402 - same
from tests.zoo.moved import moved  # noqa: E402 - same
from tests.zoo.tables import bars, tables  # noqa: E402 - same
from tests.zoo.verdicts import different, distance, verdict  # noqa: E402 - same

FLOATS = np.array([[1.0, -4.0], [0.5, 2.0]], np.float32)


@pytest.fixture
def tiny():
    """``y = -x`` and ``n = ids + ids``, with a symbolic axis and a text that nothing reads."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [3])
    word = helper.make_tensor_value_info("word", TensorProto.STRING, [2])
    made = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2]),
        helper.make_tensor_value_info("n", TensorProto.INT64, [3]),
        helper.make_tensor_value_info("said", TensorProto.STRING, [2]),
    ]
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Add", ["ids", "ids"], ["n"]),
        helper.make_node("Identity", ["word"], ["said"]),
    ]
    graph = helper.make_graph(nodes, "tiny", [x, ids, word], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def spoken(**inputs):
    return ZooModel("tiny", "tiny.onnx", "", inputs)


FULL = {
    "x": Draw((5, 2), low=0.0),
    "ids": Draw(low=3, high=5),
    "word": Draw(texts=("a", "b")),
}


def test_the_manifest_names_at_least_40_models_with_digests_and_licences():
    archives = read_manifest()
    models = [each for archive in archives for each in archive.models]
    assert len(models) >= 40
    for known in ("name", "sha256"):
        assert len({getattr(each, known) for each in models}) == len(models)
    for each in (*archives, *models):
        assert re.fullmatch("[0-9a-f]{64}", each.sha256)
    assert all(each.licence and each.version for each in archives)
    assert all(each.file.endswith(".onnx") for each in models)


def test_no_model_is_in_the_repository():
    assert list(Path(__file__).parents[1].joinpath("zoo").rglob("*.onnx")) == []


def test_inputs_are_those_of_the_seed_and_of_the_manifest(tiny):
    one, same, other = (drawn(tiny, spoken(**FULL), seed) for seed in (1, 1, 2))
    for name in ("x", "ids", "word"):
        np.testing.assert_array_equal(one[name], same[name])
    assert (one["x"] != other["x"]).any()
    assert one["x"].shape == (5, 2)
    assert one["x"].dtype == np.float32
    assert 0 <= one["x"].min() <= one["x"].max() <= 1
    assert set(one["ids"]) <= {3, 4}
    assert one["ids"].dtype == np.int64
    assert set(one["word"]) <= {"a", "b"}
    fixed = drawn(tiny, spoken(**FULL | {"ids": Draw(value=7)}), 1)
    np.testing.assert_array_equal(fixed["ids"], [7, 7, 7])


def test_an_axis_without_a_size_and_an_input_that_is_none_are_refused(tiny):
    with pytest.raises(ValueError, match="the shape of x"):
        drawn(tiny, spoken(), 1)
    with pytest.raises(ValueError, match=r"no inputs \['z'\]"):
        drawn(tiny, spoken(z=Draw()), 1)


def test_numbers_agree_within_a_tolerance_and_everything_else_is_equal():
    assert different([FLOATS * (1 + 1e-4), np.array([1])], [FLOATS, np.array([1])]) == ""
    assert "of 4 differ" in different([FLOATS * 1.01], [FLOATS])
    assert "output 1: 1 of 1" in different([FLOATS, np.array([2])], [FLOATS, np.array([1])])
    assert "shape" in different([FLOATS[0]], [FLOATS])
    assert "dtype" in different([FLOATS.astype(np.float64)], [FLOATS])
    assert "outputs" in different([], [FLOATS])
    # what is left of large numbers, and the steps of onnxruntime's sigmoid
    assert different([np.float32([1e-3, 100])], [np.float32([0, 100])]) == ""
    assert different([np.float32([1.2e-7])], [np.float32([0])]) == ""
    assert different([np.float32([1e-6])], [np.float32([0])]) != ""
    assert "text" in different([np.array(["a"])], [np.array(["b"])])


def test_distances_are_of_the_worst_output():
    assert distance([FLOATS * 2, FLOATS], [FLOATS, FLOATS]) == 1.0
    assert distance([np.array([1, 2, 3, 4])], [np.array([1, 2, 3, 5])]) == 0.25
    assert distance([FLOATS * np.nan], [FLOATS]) == distance([], [FLOATS]) == np.inf


def test_a_verdict_names_the_operator_that_was_refused():
    text = "exit code 1: walle_stream.errors.engine.LoweringError: node 'a (b)' (com.microsoft.Gelu, opset 1): none"
    found = verdict({"walle": text}, {})
    assert (found["verdict"], found["operator"]) == ("refused", "com.microsoft.Gelu")
    assert found["reason"].startswith("LoweringError: node")
    assert verdict({"walle": "exit code 1: no message"}, {})["operator"] == ""
    assert verdict({"onnxruntime": "no", "walle": "no"}, {})["verdict"] == "no oracle"


def test_weights_are_moved_by_their_last_places_and_sizes_are_not(tiny):
    weights = np.array([0.1, -3.3, 2.0, 0.0], np.float32)
    tiny.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    tiny.graph.node.append(helper.make_node("Constant", [], ["c"], value_floats=[1.5]))
    one, same, other = (
        onnx.numpy_helper.to_array(moved(tiny, seed).graph.initializer[0]) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one[:2] != weights[:2]).any()
    assert (one[:2] != other[:2]).any()
    np.testing.assert_array_equal(one[2:], weights[2:])
    np.testing.assert_allclose(one, weights, rtol=2e-6)


@pytest.mark.parametrize(
    ("compared", "wanted"),
    [
        ({"reason": "", "away": 0.0}, "agree"),
        ({"reason": "so", "away": 0.01, "spread": 0.02}, "near"),
        ({"reason": "so", "away": 0.03, "spread": 0.02}, "differ"),
        ({"reason": "so", "away": 0.03, "spread": 0.2}, "differ"),
        ({"reason": "so", "away": np.inf, "spread": 0.01}, "differ"),
    ],
)
def test_a_verdict_is_near_within_the_spread_of_the_oracle(compared, wanted):
    assert verdict({}, compared)["verdict"] == wanted


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("tiny/m.onnx", b"a model")
    return path


def test_a_file_of_a_wheel_is_taken_with_its_digest_alone(wheel, tmp_path):
    digest = hashlib.sha256(b"a model").hexdigest()
    model = ZooModel("tiny", "tiny/m.onnx", digest)
    unpack(wheel, model, tmp_path)
    assert model_path(model, tmp_path).read_bytes() == b"a model"
    fetch(Archive("tiny", "1", "", "MIT", [model]), tmp_path)  # nothing to download
    with pytest.raises(DownloadError, match="has the digest"):
        unpack(wheel, ZooModel("tiny", "tiny/m.onnx", "0" * 64), tmp_path)
    with pytest.raises(DownloadError, match="has no tiny/n"):
        unpack(wheel, ZooModel("tiny", "tiny/n.onnx", digest), tmp_path)


def test_the_cache_is_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    assert cache_folder() == tmp_path / "users/walle-zoo"
    monkeypatch.setenv("WALLE_ZOO_CACHE", str(tmp_path / "zoo"))
    assert cache_folder() == tmp_path / "zoo"


def test_a_model_runs_in_a_process_and_is_compared(tiny, tmp_path):
    from engine_parts.running import Files, measured  # noqa: PLC0415 - bench is no package of ours

    given = drawn(tiny, spoken(**FULL), 1)
    onnx.save(tiny, tmp_path / "m.onnx")
    np.savez(tmp_path / "m.npz", **given)
    files = Files(tmp_path / "m.onnx", tmp_path / "m.npz", ("y", "n", "said"))
    wanted = [-given["x"], given["ids"] * 2, given["word"]]

    def compare(made):
        return {"reason": different(made["walle"], wanted), "away": distance(made["walle"], wanted)}

    found = measured(files, {"walle": Path(sys.executable)}, 2, 0.001, compare)
    assert verdict(found["failed"], found["difference"])["verdict"] == "agree"


def test_maps_and_sequences_are_compared_as_their_arrays():
    from engine_parts.child import _flat  # noqa: PLC0415 - same

    keys, values, one, text = _flat([[{1: 0.5, 2: 0.25}], [FLOATS], np.array(["a"], object)])
    assert (keys.tolist(), values.tolist(), text.tolist()) == ([1, 2], [0.5, 0.25], ["a"])
    assert one is FLOATS


def test_bars_and_tables_count_verdicts():
    def model(kind, operator=""):
        return {
            "name": kind, "package": "p 1", "nodes": 3, "verdict": kind, "operator": operator,
            "reason": "why", "contenders": {}, "ratio": {},
        }  # fmt: skip

    models = [model("agree")] * 38 + [model("near"), model("refused", "Gelu"), model("refused")]
    result = {"models": models, "missing": [{"package": "q", "reason": "gone"}]}
    assert [each["met"] for each in bars(result)] == [True, True, False]
    _, every, why = tables(result | {"bars": bars(result)})
    assert every.title == "Real models: 38 agree, 1 near, 2 refused"
    assert [row[2] for row in why.rows] == ["Gelu", "", ""]
