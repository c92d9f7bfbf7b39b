import sys
import threading

import numpy as np
import pytest

from walle_stream.engine import Module, load, load_bytes
from walle_stream.engine import module as engine_module
from walle_stream.engine.graph import Graph, Model, Node, TensorType
from walle_stream.errors import EngineError, ModelError

BACKENDS = ("numpy", "reference")


def rows(count):
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3) - 3


def expected(x):
    w = np.arange(6, dtype=np.float32).reshape(3, 2) - 2
    return np.maximum(x @ w + 1, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_with_any_number_of_rows(dense, backend):
    module = Module(dense, backend=backend)
    for count in (1, 4, 0, 4):
        np.testing.assert_allclose(module.run({"x": rows(count)})["y"], expected(rows(count)))


def test_says_what_it_takes_and_gives(dense):
    module = Module(dense)
    assert list(module.inputs) == ["x"]
    assert module.inputs["x"] == TensorType(np.dtype(np.float32), ("rows", 3))
    assert list(module.outputs) == ["y", "w2"]


def test_gives_the_outputs_that_are_asked_for(dense):
    assert list(Module(dense).run({"x": rows(2)}, ["w2"])) == ["w2"]
    with pytest.raises(EngineError, match=r"no output 'z'.*'y', 'w2'"):
        Module(dense).run({"x": rows(2)}, ["z"])


@pytest.mark.parametrize("given", [[rows(2)], None, rows(2), "x", 5])
def test_inputs_without_names_are_refused_in_one_line(dense, given):
    for ask in (Module(dense).run, Module(dense).session({"x": (2, 3)}).run, Module(dense).profile):
        with pytest.raises(EngineError, match="inputs must be given by name") as caught:
            ask(given)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wanted", ["y", 5, [[]]])
def test_outputs_that_are_no_names_are_refused(dense, wanted):
    with pytest.raises(EngineError, match=r"list of names|no output"):
        Module(dense).run({"x": rows(2)}, wanted)


def test_what_was_asked_of_shapes_is_kept_for_as_many_as_plans(dense, monkeypatch):
    monkeypatch.setattr(engine_module, "PLANS_MAX", 4)
    module = Module(dense)
    for count in range(20):
        module.run({"x": rows(count)})
    stage = module._runner._first
    assert (len(stage._pieces), len(stage._required)) == (4, 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_are_the_callers_own(dense, backend):
    module = Module(dense, backend=backend)
    first = module.run({"x": rows(2)})
    for each in first.values():
        each.fill(np.nan)
    second = module.run({"x": rows(2)})
    np.testing.assert_allclose(second["y"], expected(rows(2)))
    np.testing.assert_array_equal(second["w2"], [[-2, 0, 2], [-1, 1, 3]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_that_is_an_output_twice_is_copied_twice(backend):
    kind = TensorType(np.dtype(np.float32), None)
    nodes = tuple(Node("Identity", ("x",), (name,), version=21) for name in "ab")
    module = Module(Model(Graph("g", {"x": kind}, {"a": None, "b": None}, nodes)), backend=backend)
    x = np.ones(3, np.float32)
    made = module.run({"x": x})
    made["a"].fill(5)
    assert made["b"].tolist() == x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_control_flow_follows_values(chosen, backend):
    module = Module(chosen, backend=backend)
    x = np.array([-1, 2], np.float32)
    assert module.run({"flag": np.bool_(1), "x": x})["y"].tolist() == [1, -2]
    assert module.run({"flag": np.bool_(0), "x": x})["y"].tolist() == [1, 2]


def test_shapes_may_depend_on_values(reshaped):
    module = Module(reshaped)
    for shape in ([2, 3], [3, 2], [6]):
        made = module.run({"x": np.zeros(6, np.float32), "shape": np.array(shape)})
        assert list(made["y"].shape) == shape


def test_threads_share_a_module(dense):
    module, wrong = Module(dense), []

    def run(number):
        for count in range(1, 20):
            x = rows(count) * number
            if not np.allclose(module.run({"x": x})["y"], expected(x)):
                wrong.append((number, count))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


@pytest.mark.parametrize(
    "given", [{}, {"x": rows(1), "z": rows(1)}, {"x": np.ones((1, 3))}, {"x": rows(1)[0]}]
)
def test_wrong_inputs_are_one_line(dense, given):
    with pytest.raises(EngineError) as caught:
        Module(dense).run(given)
    assert len(str(caught.value).splitlines()) == 1
    assert "'x'" in str(caught.value)


def test_a_backend_that_there_is_not_is_named(dense):
    with pytest.raises(EngineError, match="no backend 'tpu'"):
        Module(dense, backend="tpu")


def test_a_file_is_loaded(dense_file):
    x = np.ones((2, 3), np.float32)
    for module in (load(dense_file), load(str(dense_file)), load_bytes(dense_file.read_bytes())):
        assert module.run({"x": x})["y"].tolist() == [[6, 9], [6, 9]]


def test_a_file_that_is_none_is_one_line(tmp_path, dense_file):
    with pytest.raises(ModelError, match=r"away\.onnx'?: No such file"):
        load(tmp_path / "away.onnx")
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(dense_file.read_bytes()[:50])
    with pytest.raises(ModelError, match=r"cut\.onnx"):
        load(cut)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in [each for each in sys.modules if each.startswith("walle_stream.engine.onnx.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("walle_stream.engine.onnx.importer", raising=False)
    with pytest.raises(EngineError, match=r"'onnx': install walle-stream\[onnx\]"):
        load(tmp_path / "any.onnx")
