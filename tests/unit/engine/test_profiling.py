import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from walle_stream.engine import Module
from walle_stream.engine.flame import flame_svg
from walle_stream.engine.graph import Graph, Model, Node, TensorType
from walle_stream.errors import EngineError

FLOAT = np.dtype(np.float32)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def profile(dense):
    return Module(dense).profile({"x": np.ones((4, 3), np.float32)}, repeats=3)


@pytest.fixture
def moves():
    """Two transposes one behind the other, and what they make twice: two rasters too many."""
    nodes = [
        Node("Transpose", (one,), (other,), {"perm": (1, 2, 0)}, version=21)
        for one, other in ("xa", "ab")
    ]
    nodes.append(Node("Concat", ("b", "b"), ("c",), {"axis": 0}, version=21))
    graph = Graph("moves", {"x": TensorType(FLOAT, (8, 9, 10))}, {"c": None}, tuple(nodes))
    return Module(Model(graph))


def test_names_nodes_and_what_they_are(profile):
    found = {each.name: each.operator for each in profile.nodes}
    assert found.keys() >= {"the MatMul", "the Relu"}
    assert found["the MatMul"] == "MatMul"
    (node,) = (each for each in profile.nodes if each.name == "the MatMul")
    (product,) = (each for each in node.steps if each.name == "matmul")
    assert product.calls == 1
    # 4 x 3, 3 x 2 and 4 x 2 floats
    assert product.bytes == 4 * (12 + 6 + 8)


def test_shares_add_up_to_the_run(profile):
    shares = sum(each.total.share for each in profile.nodes) + profile.other.share
    assert shares == pytest.approx(1)
    assert sum(each.ms for each in profile.operators()) == pytest.approx(
        sum(each.ms for each in profile.kernels())
    )
    assert profile.repeats == 3


def test_says_what_merging_saves(moves):
    stages = moves.profile({"x": np.ones((8, 9, 10), np.float32)}, 1).stages
    assert list(stages) == ["lowered", "merged", "planned"]
    assert stages["lowered"].rasters == 3
    assert stages["merged"].rasters == 1
    # 720 floats, twice moved whole and once doubled
    assert stages["lowered"].moved_bytes == 4 * 720 * 4
    assert stages["merged"].moved_bytes == 2 * 720 * 4
    # the input and two tensors of its size, then one of its size and one of twice
    assert stages["merged"].peak_bytes == 3 * 720 * 4
    assert stages["planned"].peak_bytes <= stages["lowered"].peak_bytes


def test_the_reference_backend_is_profiled_as_it_stands(dense):
    found = Module(dense, backend="reference").profile({"x": np.ones((4, 3), np.float32)}, 1)
    assert list(found.stages) == ["lowered"]
    assert "matmul" in {each.name for each in found.kernels()}


def test_control_flow_is_profiled_by_the_nodes_of_its_graphs(chosen):
    given = {"flag": np.bool_(1), "x": np.ones(3, np.float32)}
    found = Module(chosen).profile(given, 2)
    assert "Neg" in {each.operator for each in found.nodes}


def test_is_json(profile):
    found = json.loads(json.dumps(profile.to_builtins()))
    assert found["format"] == 1
    assert {each["name"] for each in found["operators"]} >= {"MatMul", "Relu"}
    assert found["stages"]["lowered"]["steps"] > 0


@pytest.mark.parametrize("repeats", [0, -1, 1.5])
def test_wrong_repeats_are_refused(dense, repeats):
    with pytest.raises(EngineError, match="whole number from 1"):
        Module(dense).profile({"x": np.ones((4, 3), np.float32)}, repeats)


def test_is_drawn_with_titles(profile):
    root = ET.fromstring(flame_svg(profile))  # noqa: S314  # our own
    titles = [each.text for each in root.iter(f"{SVG}title")]
    assert any(each.startswith("MatMul the MatMul: ") for each in titles)
    assert any(each.startswith("matmul: ") for each in titles)


def test_names_of_a_model_cannot_break_the_drawing():
    node = Node("Neg", ("x",), ("y",), {}, "<b>&\x00\ud800\"'", "", 21)
    graph = Graph("<svg>", {"x": TensorType(FLOAT, (2,))}, {"y": None}, (node,))
    found = Module(Model(graph)).profile({"x": np.ones(2, np.float32)}, 1)
    text = flame_svg(found)
    text.encode()
    ET.fromstring(text)  # noqa: S314  # our own


def test_a_drawing_of_many_small_nodes_is_small():
    count = 3000
    nodes = tuple(Node("Neg", (f"v{i}",), (f"v{i + 1}",), version=21) for i in range(count))
    graph = Graph("long", {"v0": TensorType(FLOAT, (2,))}, {f"v{count}": None}, nodes)
    found = Module(Model(graph)).profile({"v0": np.ones(2, np.float32)}, 1)
    assert flame_svg(found).count("<rect") < 2500
