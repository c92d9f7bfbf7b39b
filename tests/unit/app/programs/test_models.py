"""Models that a pipeline names: read by who runs them, once, and faults with their place."""

import sys
import threading
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from walle_stream.app.programs.functions import load_function
from walle_stream.app.programs.models import load_models, onnx_models
from walle_stream.engine import backends
from walle_stream.engine import models as engine_models
from walle_stream.engine.backends.cupy import CupyBackend
from walle_stream.engine.threads import blas_threads
from walle_stream.errors import EngineError, FunctionError, ModelError
from walle_stream.spec.references import ModelReference
from walle_stream.testing.cupy_stand_in import stand_in

onnx = pytest.importorskip("onnx")

TWICE = """
<ir_version: 8, opset_import: ["": 17]>
twice (float[n] x) => (float[n] y) { y = Add(x, x) }
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "twice.onnx"
    onnx.save(onnx.parser.parse_model(TWICE), path)
    return path


def models_of(file, **more):
    return load_models({"twice": ModelReference(onnx=file, **more)})


def test_a_file_is_read_when_it_is_first_needed_and_then_no_more(file):
    models = models_of(file)
    (model,) = onnx_models(models).values()
    (y,) = models["twice"](np.ones(2, np.float32))
    assert y.tolist() == [2, 2]
    file.unlink()
    assert model.read() is model.read()
    with pytest.raises(ModelError, match=r"twice\.onnx"):
        model.check()


def test_several_threads_read_it_once(file):
    (model,) = onnx_models(models_of(file)).values()
    found = []
    threads = [threading.Thread(target=lambda: found.append(model.read())) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(map(id, found))) == 1


def test_one_thread_is_taken_unless_another_number_is_wanted(file):
    (model,) = onnx_models(models_of(file)).values()
    assert model.read().module.threads == (1 if blas_threads() else None)
    (model,) = onnx_models(models_of(file, backend="reference")).values()
    assert model.read().module.backend == "reference"


def test_backends_of_definitions_are_backends():
    named = get_args(ModelReference.model_fields["backend"].annotation)
    assert set(named) == set(backends._BACKENDS)


def test_without_cupy_a_model_on_it_is_refused_in_one_line_with_its_place(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    (model,) = onnx_models(models_of(file, backend="cupy")).values()
    for ask in (model.read, model.check):
        with pytest.raises(EngineError, match=r"^spec\.models\.twice: .*extra gpu-cuda") as caught:
            ask()
        assert caught.value.exit_code == 15
        assert len(str(caught.value).splitlines()) == 1


def test_a_model_on_cupy_gives_what_it_gives_on_numpy(file, monkeypatch):
    device = CupyBackend(stand_in())
    monkeypatch.setattr(engine_models, "backend_named", lambda name: {"cupy": device}[name])
    (y,) = models_of(file, backend="cupy")["twice"](np.ones(2, np.float32))
    assert y.tolist() == [2, 2]
    assert y.dtype == np.float32


@pytest.mark.parametrize("data", [b"no model", b""])
def test_what_is_no_model_is_refused_in_one_line_with_its_place(file, data):
    file.write_bytes(data)
    with pytest.raises(ModelError, match=r"^spec\.models\.twice: .*twice\.onnx: ") as caught:
        onnx_models(models_of(file))["twice"].read()
    assert str(caught.value).count("twice.onnx") == 1
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"^spec\.models\.twice: .*Is a directory"):
        onnx_models(models_of(tmp_path))["twice"].read()


def test_without_the_extra_it_is_said_what_to_install(file, monkeypatch):
    def fail(path):
        raise EngineError("models need the package 'onnx': install walle-stream[onnx]")

    monkeypatch.setattr("walle_stream.engine.session.read_model", fail)
    with pytest.raises(EngineError, match=r"^spec\.models\.twice: .*install walle-stream\[onnx\]"):
        onnx_models(models_of(file))["twice"].read()


def test_functions_are_models_as_before(tmp_path):
    (tmp_path / "m.py").write_text("def f(x): return x\n")
    models = load_models(
        {"f": ModelReference(file=tmp_path / "m.py", function="f"),
         "sqrt": ModelReference(function="math:sqrt")}
    )  # fmt: skip
    assert not onnx_models(models)
    assert models["f"](3) == 3
    assert models["sqrt"](9) == 3
    with pytest.raises(FunctionError, match=r"spec\.models\.g: math has no function 'none'"):
        load_function("spec.models.g", None, "math:none")


def test_one_number_of_threads_holds_for_models_that_say_none(file):
    references = {"a": ModelReference(onnx=file), "b": ModelReference(onnx=file, threads=1)}
    models = onnx_models(load_models(references, 2))
    assert [models[name].blueprint().threads for name in "ab"] == [2, 1]
    assert models["b"].read().module.threads == (1 if blas_threads() else None)


def test_a_blueprint_needs_no_backend_here_and_builds_the_same_elsewhere(file):
    (model,) = onnx_models(models_of(file, backend="cupy")).values()
    blueprint = model.blueprint()
    assert (blueprint.backend, blueprint.place) == ("cupy", "spec.models.twice")
    (model,) = onnx_models(models_of(file)).values()
    x = np.float32([1, 2])
    assert model.blueprint().build()(x)[0].tobytes() == model(x)[0].tobytes()


def test_what_a_blueprint_cannot_be_built_for_is_said_with_its_place(file):
    (model,) = onnx_models(models_of(file)).values()
    blueprint = replace(model.blueprint(), backend="none")
    with pytest.raises(EngineError, match=r"^spec\.models\.twice: there is no backend 'none'"):
        blueprint.build()


def test_a_closed_file_is_not_read_again(file):
    (model,) = onnx_models(models_of(file)).values()
    model.close()
    with pytest.raises(EngineError, match=r"spec\.models\.twice: the model is closed"):
        model.read()


def test_a_model_with_a_batch_takes_rows_of_many_requests(file):
    model = models_of(file, batch=16)["twice"]
    found = model.run_many([[np.ones(1, np.float32)], [np.full(6, 2, np.float32)]])
    assert [y.tolist() for (y,) in found] == [[2], [4] * 6]
    assert model(np.ones(1, np.float32))[0].tolist() == [2]
    assert not hasattr(models_of(file)["twice"], "run_many")


def test_a_batch_of_what_has_no_rows_is_refused_with_its_place(tmp_path):
    path = tmp_path / "fixed.onnx"
    onnx.save(onnx.parser.parse_model(TWICE.replace("[n]", "[3]")), path)
    with pytest.raises(
        ModelError, match=r"^spec\.models\.twice: input 'x' always has 3 rows: leave"
    ):
        onnx_models(models_of(path, batch=16))["twice"].check()
