import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from walle_stream.cli.__main__ import main

pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path):
    """``y = relu(x @ w)`` with rows of any number."""
    import onnx  # noqa: PLC0415  # an extra

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Relu", ["xw"], ["y/1"])],
        "dense",
        [helper.make_tensor_value_info("x", kind, ["rows", 3])],
        [helper.make_tensor_value_info("y/1", kind, ["rows", 2])],
        [weights],
    )
    path = tmp_path / "dense.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


@pytest.fixture
def walle(capsys):
    def run(*arguments):
        try:
            code = main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_profile_prints_tables_and_draws(walle, model, tmp_path):
    svg = tmp_path / "flame.svg"
    code, out, _ = walle("engine", "profile", model, "--input", "x=4,3", "-n", 2, "--svg", svg)
    assert code == 0
    for word in ("MatMul", "matmul", "lowered", "planned", "peak memory"):
        assert word in out
    ET.fromstring(svg.read_text())  # noqa: S314  # our own


def test_profile_as_json_says_what_it_assumed(walle, model):
    code, out, _ = walle("engine", "profile", model, "-n", 1, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["stages"]["planned"]["rasters"] == 0
    assert "assumed [1, 3]" in found["notes"][0]
    assert {each["name"] for each in found["operators"]} == {"MatMul", "Relu"}


@pytest.mark.parametrize("text", ["x=5x3", "x=5,3"])
def test_profile_takes_shapes(walle, model, text):
    code, out, _ = walle("engine", "profile", model, "-n", 1, "--json", "--input", text)
    assert code == 0
    assert not json.loads(out)["notes"]


def test_operators_are_counted(walle):
    code, out, _ = walle("engine", "operators", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"Conv", "Softmax", "If"} <= {each["name"] for each in found["operators"]}
    code, out, _ = walle("engine", "operators")
    assert code == 0
    assert "saved" in out


def test_run_writes_a_file_an_output(walle, model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    folder = tmp_path / "made"
    code, out, _ = walle(
        "engine", "run", model, "--input", f"x={tmp_path / 'x.npy'}", "--out", folder, "--json"
    )
    (fact,) = json.loads(out)["outputs"]
    assert code == 0
    assert fact == {"name": "y/1", "dtype": "float32", "shape": [2, 2],
                    "file": str(folder / "y_1.npy")}  # fmt: skip
    assert np.load(folder / "y_1.npy").tolist() == [[6, 9], [6, 9]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "away.onnx"], "No such file"),
        (["profile", "MODEL", "--input", "z=1"], "no input 'z'"),
        (["profile", "MODEL", "--input", "x=4,4"], "'x'"),
        (["profile", "MODEL", "--input", "x=99999999999,3"], "elements"),
        (["profile", "MODEL", "--input", "x=away.npy"], "No such file"),
        (["profile", "MODEL", "--backend", "tpu"], "no backend 'tpu'"),
        (["profile", "TEXT"], "TEXT"),
        (["run", "MODEL", "--out", "made"], "'x'"),
        (["run", "MODEL", "--input", "x=TEXT", "--out", "made"], "not an array in numpy's format"),
    ],
)
def test_bad_input_is_one_line_and_15(walle, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "TEXT").write_text("no model, no array")
    arguments = [str(model) if each == "MODEL" else each for each in arguments]
    code, out, err = walle("engine", *arguments)
    assert code == 15
    assert not out
    (line,) = err.splitlines()
    assert message in line
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "arguments",
    [["profile"], ["profile", "m", "--input", "x"], ["run", "m"], ["profile", "m", "-n", "0"]],
)
def test_wrong_usage_is_one_line_and_2(walle, arguments):
    code, _, err = walle("engine", *arguments)
    assert code == 2
    assert len(err.splitlines()) == 1
