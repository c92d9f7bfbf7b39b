"""The engine's benchmark: every architecture is a model that our engine runs right."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from walle_stream.engine.backends import backend_named
from walle_stream.engine.module import GraphRunner

pytest.importorskip("onnx", reason="the extra `onnx` is missing")

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "resnet18", "resnet50", "mobilenetv2", "squeezenet", "shufflenetv2", "bert",
    "bert-decomposed", "din", "din256", "voxelmorph",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _bench_path():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield


def drawn(name):
    from models.registry import ARCHITECTURES  # noqa: PLC0415 - bench is no package of ours

    return ARCHITECTURES[name].build_small(7)


def run(model, inputs, backend):
    from walle_stream.engine.onnx.importer import import_model  # noqa: PLC0415 - needs the extra

    loaded = import_model(model)
    return GraphRunner(loaded.graph, loaded.functions, backend_named(backend)).run(inputs)


def test_the_registry_holds_the_named_architectures():
    from models.registry import ARCHITECTURES  # noqa: PLC0415 - same

    assert tuple(ARCHITECTURES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_valid_and_both_backends_agree(name):
    import onnx  # noqa: PLC0415 - an extra

    model, inputs = drawn(name)
    onnx.checker.check_model(model, full_check=True)
    found, wanted = (run(model, inputs, backend) for backend in ("numpy", "reference"))
    for mine, theirs, declared in zip(found, wanted, model.graph.output, strict=True):
        dims = [each.dim_value for each in declared.type.tensor_type.shape.dim]
        assert list(mine.shape) == dims
        assert np.isfinite(mine).all()
        assert mine.std() > 1e-3
        assert abs(mine - theirs).max() <= 1e-4 * abs(theirs).max()


def test_a_seed_gives_the_same_model_and_another_one_another():
    from models.registry import ARCHITECTURES  # noqa: PLC0415 - same

    build = ARCHITECTURES["din"].build_small
    one, same, other = build(1), build(1), build(2)
    assert one.model == same.model
    assert one.model != other.model
    np.testing.assert_array_equal(one.inputs["target"], same.inputs["target"])


def test_normalization_in_parts_gives_what_the_one_node_gives():
    whole, parts = drawn("bert"), drawn("bert-decomposed")
    for one, other in zip(run(*whole, "numpy"), run(*parts, "numpy"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_batch_normalizations_stay_nodes():
    kinds = [node.op_type for node in drawn("resnet50").model.graph.node]
    assert kinds.count("BatchNormalization") == kinds.count("Conv") == 53


def test_a_model_is_written_as_a_file_with_its_inputs(tmp_path):
    import onnx  # noqa: PLC0415 - an extra

    command = [sys.executable, str(ROOT / "bench/write_model.py"), "din", str(tmp_path / "m.onnx")]
    command += ["--small", "--seed", "7", "--inputs", str(tmp_path / "m.npz")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert onnx.load(tmp_path / "m.onnx") == drawn("din").model
    assert set(np.load(tmp_path / "m.npz").files) == {"behaviours", "target"}


def executable(flags):
    header = b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<Q", 64) + bytes(14)
    header += struct.pack("<HH", 56, 2) + bytes(6)
    stack = struct.pack("<II", 0x6474E551, flags)
    return header + struct.pack("<II", 1, 5) + bytes(48) + stack + bytes(48) + b"code"


def test_an_object_asks_for_a_plain_stack_afterwards(tmp_path):
    from engine_parts.executable_stack import clear_executable_stack  # noqa: PLC0415 - same

    path = tmp_path / "engine.so"
    path.write_bytes(executable(7))
    assert clear_executable_stack(path)
    assert path.read_bytes() == executable(6)
    assert not clear_executable_stack(path)
    (tmp_path / "text.so").write_bytes(b"GROUP ( libm.so )")
    assert not clear_executable_stack(tmp_path / "text.so")


def test_a_difference_counts_what_is_not_finite_or_of_another_shape():
    from engine_parts.running import difference  # noqa: PLC0415 - same

    wanted = np.array([1.0, -4.0])
    assert difference(np.array([1.0, -3.0]), wanted) == 0.25
    assert difference(np.array([1.0, np.nan]), wanted) == np.inf
    assert difference(np.array([1.0]), wanted) == np.inf


def test_ours_are_held_against_their_bars():
    from engine_parts.tables import bars  # noqa: PLC0415 - same

    def model(name, ratios, away):
        medians = {peer: {"median": value} for peer, value in ratios.items()}
        return {"name": name, "title": name, "ratios": medians, "difference": {"walle": away}}

    models = [
        model("resnet50", {"onnxruntime": 1.8, "mnn": 1.2}, 1e-6),
        model("din", {"onnxruntime": 9.0}, 2e-4),
        model("bert", {"onnxruntime": 1.6}, 1e-4),
    ]
    found = [
        (each["name"], each["met"], each["note"])
        for each in bars({"models": models, "quick": False})
    ]
    assert found == [
        ("resnet50: time / onnxruntime's", True, ""),
        ("bert: time / onnxruntime's", False, ""),
        ("resnet50: time / MNN (AVX2)'s", False, ""),
        ("bert: time / MNN (AVX2)'s", False, "the peer did not run it"),
        ("resnet50: max|a-b| / max|b| to onnxruntime", True, ""),
        ("din: max|a-b| / max|b| to onnxruntime", False, ""),
        ("bert: max|a-b| / max|b| to onnxruntime", True, ""),
    ]
    assert not any(each["met"] for each in bars({"models": models, "quick": True})[:4])


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, str(ROOT / "bench/engine.py"), "--quick", "--installed", "--trial"]
    command += ["--environments", str(folder / "none"), "--json", str(folder / "engine.json")]
    command += ["--models", "din", "voxelmorph"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "engine.json").read_text()), done


def test_ours_are_measured_where_no_peer_is_there(measured):
    result, done = measured
    assert [each["name"] for each in result["models"]] == ["din", "voxelmorph"]
    for each in result["models"]:
        assert list(each["contenders"]) == ["walle"]
        assert each["contenders"]["walle"]["cpu_ms"]["median"] > 0
        assert each["ratios"] == each["difference"] == each["failed"] == {}
        lowered, merged, planned = (
            each["stages"][name] for name in ("lowered", "merged", "planned")
        )
        assert lowered["moved_bytes"] >= merged["moved_bytes"] >= planned["moved_bytes"] > 0
    assert {"seed", "machine", "versions", "date", "settings"} <= set(result)
    assert "round 1: ms of CPU: walle" in done.stderr
    assert "did not take part" in done.stdout


def test_peers_that_are_not_there_are_named_with_the_reason(measured):
    result = measured[0]
    assert [each["title"] for each in result["missing"]] == ["onnxruntime", "MNN (AVX2)"]
    assert all("is not installed" in each["reason"] for each in result["missing"])
    assert not any(each["met"] for each in result["bars"])


def test_the_report_shows_the_tables(measured, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - same

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "engine.json").write_text(json.dumps(measured[0]))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "| DIN, batch 1 |" in text
    assert "A TRIAL" in text


def test_a_child_that_fails_says_why(tmp_path):
    from engine_parts.running import Files, measured  # noqa: PLC0415 - same

    (tmp_path / "m.onnx").write_bytes(b"no model")
    np.savez(tmp_path / "m.npz", x=np.zeros(1))
    files = Files(tmp_path / "m.onnx", tmp_path / "m.npz", ("y",))
    found = measured(files, {"walle": Path(sys.executable)}, 1, 0.01)
    assert found["contenders"] == {}
    assert "ModelError" in found["failed"]["walle"]
