"""ONNX files as models of the host, in whole runs: scripts ask, the engine answers."""

import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests.integration.conftest import needs_ray
from walle_stream.app.figures.status import read_status
from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.app.queries.replay import dead_letters
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import ClusterError, EngineError, ModelError
from walle_stream.testing.kit import run_pipeline
from walle_stream.testing.model_suite import TEXTS

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.integration

FEW = ["spec.source.devices=12"]
RECIPE = TEXTS["rank"]
SCRIPT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    seen = ctx.tensor([[float(k), 1.0] for k in range(n)])
    items = ctx.tensor([k for k in range(n)])
    score, liked, small = (ctx.run_model("rank", items * 2, seen * 2, output=k) for k in range(3))
    half = score / 2
    ctx.evaluate(half, liked, small)
    ctx.emit({"half": half.tolist(), "liked": liked.tolist(), "small": small.tolist(),
              "dtypes": [liked.dtype, small.dtype]})
    if n > 1:
        return
    wrong = {
        "lossy": (items, ctx.tensor([[0.1, 0.2]], dtype="float64")),
        "few": (items,),
        "wide": (items, ctx.tensor([[1.0, 2.0, 3.0]])),
    }
    for name, given in wrong.items():
        try:
            ctx.run_model("rank", *given).tolist()
        except RuntimeError as error:
            ctx.emit({name: str(error)})
"""
BATCHED = """
def run(ctx, page):
    views = [*ctx.state.get("views", []), [page.dwell_ms / 1e5, 0.5, 1.0 * len(page.events), 0.0]]
    ctx.state.put("views", views[-5:])
    chances = ctx.run_model("intent", ctx.tensor(views))
    ctx.emit({"views": len(views), "chances": chances, "mean": chances.mean()})
    if page.dwell_ms % 7 == 0:
        raise ValueError("a run fails, others go on")
"""


@pytest.fixture
def folder(tmp_path):
    """A small pipeline with a model in a file."""
    folder = tmp_path / "p"
    shutil.copytree(shipped_configs() / "template", folder)
    (folder / "visit.py").write_text(SCRIPT)
    file = folder / "pipeline.yaml"
    more = "\n  models: {rank: {onnx: rank.onnx}}\n  tasks:"
    file.write_text(file.read_text().replace("\n  tasks:", more))
    onnx.save(onnx.parser.parse_model(RECIPE), folder / "rank.onnx")
    return folder


def outcome(data_dir):
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


def test_the_shipped_recipe_makes_the_shipped_model(tmp_path):
    recipe = (shipped_configs() / "models/intent.py").read_text()
    text = recipe.split('"""')[3]
    shipped = onnx.load(shipped_configs() / "models/intent.onnx")
    assert onnx.parser.parse_model(text) == shipped


def test_the_shipped_example_gives_what_plain_numpy_gives(tmp_path):
    (tmp_path / "models").mkdir()
    for name in ("intent.yaml", "intent.py", "models/intent.onnx"):
        shutil.copy(shipped_configs() / name, tmp_path / name)
    found = run_pipeline(tmp_path / "intent.yaml", tmp_path / "d", FEW)
    graph = onnx.load(tmp_path / "models/intent.onnx").graph
    weights = {each.name: onnx.numpy_helper.to_array(each).tolist() for each in graph.initializer}
    (tmp_path / "twin.py").write_text(f"""
import numpy as np
w1, b1, w2, b2 = (np.float32({weights}[name]) for name in ("w1", "b1", "w2", "b2"))
def intent(view):
    return 1 / (1 + np.exp(-(np.maximum(view @ w1 + b1, 0) @ w2 + b2)))
""")
    file = tmp_path / "intent.yaml"
    reference = "intent: {onnx: models/intent.onnx, threads: 1, batch: 16}"
    assert reference in file.read_text()
    twin = file.read_text().replace(reference, "intent: {file: twin.py, function: intent}")
    file.write_text(twin)
    expected = run_pipeline(file, tmp_path / "twin", FEW)
    assert len(found) == len(expected) > 50
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["feature"] == pytest.approx(theirs["feature"], abs=2e-5)
    assert {row["feature"]["views"] for row in found} == {1, 2, 3, 4, 5}
    assert len({row["feature"]["chance"] for row in found}) > 20


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_scripts_run_onnx_files_as_part_of_tensor_expressions(folder, tmp_path, isolation):
    file = folder / "pipeline.yaml"
    text = file.read_text()
    file.write_text(text.replace("\n  script: ", f"\n  isolation: {isolation}\n  script: "))
    rows = [row["feature"] for row in run_pipeline(file, tmp_path / "d")]
    made = [row for row in rows if "half" in row]
    assert made
    for row in made:
        k = np.arange(len(row["half"]))
        score = (k * 2 * 0.5 - 2 * 0.25) + k * 2
        assert row["half"] == (score / 2).tolist()
        assert row["liked"] == (score > 0).astype(int).tolist()
        assert row["small"] == score.tolist()
        assert row["dtypes"] == ["uint8", "float32"]
    errors = {name: text for row in rows if "half" not in row for name, text in row.items()}
    assert errors.keys() == {"lossy", "few", "wide"}
    assert all("model 'rank' of shapes (1,)" in each for each in errors.values())
    assert all("node " in each and len(each.splitlines()) == 1 for each in errors.values())
    assert "input 'seen' is of float32, which cannot hold each value" in errors["lossy"]
    assert "1 inputs were given: the model has 'items', 'seen'" in errors["few"]
    assert "input 'seen': its shape is [1, 3], not [n, 2]" in errors["wide"]


def test_batches_and_hosts_change_nothing(tmp_path):
    file = shipped_configs() / "intent.yaml"
    run_pipeline(file, tmp_path / "a", FEW)
    small = ["spec.runtime.batchEvents=7", "spec.runtime.hosts=3"]
    run_pipeline(file, tmp_path / "b", [*FEW, *small])
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def killed_on_the_way(walle, file, data_dir):
    """Run a pipeline to its end, through two kills."""
    kills = 0
    for visit in (1, 4, 0):
        command = ("run", file, "--set", FEW[0], "--set", "spec.runtime.batchEvents=200")
        crash = {"WALLE_CRASH": f"commit.after:{visit}" if visit else ""}
        done = walle(*command, "--data-dir", data_dir, environ=crash, check=False)
        kills += done.returncode == -signal.SIGKILL
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    assert kills == 2


def test_kills_change_nothing(walle, tmp_path):
    file = shipped_configs() / "intent.yaml"
    run_pipeline(file, tmp_path / "a", FEW)
    killed_on_the_way(walle, file, tmp_path / "b")
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


@pytest.fixture
def batched(tmp_path):
    """A pipeline whose model is evaluated at 16 rows, of any visits, and asked for in features."""
    (tmp_path / "models").mkdir()
    for name in ("intent.yaml", "models/intent.onnx"):
        shutil.copy(shipped_configs() / name, tmp_path / name)
    file = tmp_path / "intent.yaml"
    text = file.read_text()
    reference = text[text.index("intent: {onnx") :].split("\n")[0]
    file.write_text(text.replace(reference, "intent: {onnx: models/intent.onnx, batch: 16}"))
    (tmp_path / "intent.py").write_text(BATCHED)
    return file


def test_rows_of_many_visits_are_evaluated_together_and_give_the_same(batched, tmp_path):
    from walle_stream.engine.batching import BatchedModel  # noqa: PLC0415 - needs numpy

    asked, run_many = [], BatchedModel.run_many
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            BatchedModel, "run_many", lambda *given: asked.append(len(given[1])) or run_many(*given)
        )
        run_pipeline(batched, tmp_path / "a", FEW)
    expected = outcome(tmp_path / "a")
    visits = len(expected[0].splitlines())
    assert visits > 50
    assert sum(asked) > visits  # those of runs that fail later, too
    assert max(asked) > 1
    assert len(asked) < visits
    for name, more in {
        "b": ["spec.runtime.batchEvents=1"],
        "c": ["spec.runtime.batchEvents=7", "spec.runtime.hosts=3"],
    }.items():
        run_pipeline(batched, tmp_path / name, [*FEW, *more])
        assert outcome(tmp_path / name) == expected


def test_kills_change_nothing_where_rows_are_evaluated_together(walle, batched, tmp_path):
    run_pipeline(batched, tmp_path / "a", FEW)
    killed_on_the_way(walle, batched, tmp_path / "b")
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def test_a_model_that_mixes_rows_fails_the_runs_that_ask_it(folder, tmp_path):
    text = RECIPE.replace(
        "score = Add(part, number)", "low = CumSum(part, axis) score = Add(low, number)"
    )
    text = text.replace("float nought = {0.0}", "float nought = {0.0}, int64 axis = {0}")
    onnx.save(onnx.parser.parse_model(text), folder / "rank.onnx")
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("{onnx: rank.onnx}", "{onnx: rank.onnx, batch: 16}"))
    assert run_pipeline(file, tmp_path / "d") == []
    letters = list(dead_letters(tmp_path / "d"))
    assert letters
    words = "ModelError: spec.models.rank: the result for a row depends on the other rows"
    assert all(words in each.reason for each in letters)


@needs_ray
@pytest.mark.full
def test_hosts_under_ray_read_the_file_for_themselves(walle, ray_environ, folder, tmp_path):
    # relative: a worker stands elsewhere when it begins
    file = folder / "pipeline.yaml"
    both = "{rank: {onnx: rank.onnx}, same: {file: same.py, function: same}}"
    file.write_text(file.read_text().replace("{rank: {onnx: rank.onnx}}", both))
    (folder / "same.py").write_text("def same(x):\n    return x\n")
    for name, more in (("local", ()), ("ray", ("--runtime", "ray", "--hosts", 2))):
        command = ("run", "pipeline.yaml", "--data-dir", tmp_path / name, "--json", *more)
        walle(*command, environ=ray_environ, cwd=folder, timeout=300)
    assert outcome(tmp_path / "local") == outcome(tmp_path / "ray")


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_file_that_is_not_there_is_named_with_its_place(walle, folder, command):
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("rank.onnx", "rnak.onnx"))
    done = walle(command, file, check=False, cwd=folder)
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    number = file.read_text().split("rnak")[0].count("\n") + 1
    assert f"pipeline.yaml:{number}:25: spec.models.rank.onnx: there is no file 'rnak.onnx'" in line
    assert line.endswith("did you mean 'rank.onnx'?")


@pytest.mark.parametrize("more", [(), ("--set", "spec.runtime.kind=ray")])
@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_file_that_is_no_model_is_refused_before_anything_is_opened(walle, folder, command, more):
    (folder / "rank.onnx").write_bytes(b"PK: no model")
    done = walle(command, folder / "pipeline.yaml", *more, check=False, cwd=folder)
    assert done.returncode == ModelError.exit_code == 15
    [line] = done.stderr.splitlines()
    assert "spec.models.rank: " in line
    assert "rank.onnx: not an ONNX model" in line
    assert not list(folder.glob("*walle-data*"))


@pytest.mark.skipif(find_spec("cupy") is not None, reason="cupy is installed")
@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_model_for_a_gpu_is_refused_in_one_line_where_there_is_none(walle, folder, command):
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("rank.onnx", "rank.onnx, backend: cupy"))
    done = walle(command, file, check=False, cwd=folder)
    assert done.returncode == EngineError.exit_code == 15
    [line] = done.stderr.splitlines()
    assert "spec.models.rank: " in line
    assert "gpu-cuda12" in line
    assert not list(folder.glob("*walle-data*"))


def test_a_model_that_draws_at_random_is_refused(folder, tmp_path):
    text = RECIPE.replace("liked = ", "noise = RandomNormalLike(score)\n  liked = ")
    onnx.save(onnx.parser.parse_model(text), folder / "rank.onnx")
    with pytest.raises(ModelError, match=r"spec\.models\.rank: .*RandomNormalLike.*with a seed"):
        run_pipeline(folder / "pipeline.yaml", tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_a_model_that_nobody_is_there_to_run_ends_the_run_and_no_script_is_told(
    folder, tmp_path, isolation
):
    file = folder / "pipeline.yaml"
    text = file.read_text().replace("{onnx: rank.onnx}", "{file: gone.py, function: gone}")
    file.write_text(text.replace("\n  script: ", f"\n  isolation: {isolation}\n  script: "))
    (folder / "gone.py").write_text(
        "from walle_stream.errors import ClusterError\n"
        "def gone(*inputs):\n    raise ClusterError('no engine actor is left')\n"
    )
    with pytest.raises(ClusterError, match="no engine actor is left"):
        run_pipeline(file, tmp_path / "d")
    assert not [*features_lines(tmp_path / "d")]
    assert read_status(tmp_path / "d").phase == "failed"


def test_engine_actors_are_for_ray_and_hosts_run_the_models_without(folder, tmp_path):
    file = folder / "pipeline.yaml"
    run_pipeline(file, tmp_path / "a")
    run_pipeline(file, tmp_path / "b", ["spec.engine={actors: 2, cpus: 0.5}"])
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def test_a_pipeline_without_onnx_files_loads_neither_numpy_nor_onnx(tmp_path):
    code = (
        "import sys; from pathlib import Path; from walle_stream.app.assembly import Assembly; "
        "Assembly.load(Path(sys.argv[1])); print(sorted({'numpy', 'onnx'} & set(sys.modules)))"
    )
    file = shipped_configs() / "template/pipeline.yaml"
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
