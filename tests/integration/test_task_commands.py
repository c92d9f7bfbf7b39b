"""``walle task build``, ``size`` and ``show``, as a person and as a program sees them."""

import json
import sys
from pathlib import Path

import pytest

from walle_stream.vm.package.reader import CURRENT_TAG, read_package

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
IPV = ROOT / "configs/ipv.yaml"
TASK = """\
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: 2024/05 b
  stateVersion: 3
  script: scripts/visit.py
  triggers: [{sequence: [page_enter, page_exit]}, {sequence: [click]}]
  fields: [item]
  config: {gap: 5}
  resources: {model/weights.bin: data/w.bin, words.txt: words.txt}
  limits: {wallTime: 2s}
"""


@pytest.fixture
def folder(tmp_path):
    """A task with two resources."""
    for name, content in {
        "visit.yaml": TASK,
        "scripts/visit.py": "def run(ctx, page):\n    ctx.emit({})\n"
        "def migrate(old):\n    return old\n",
        "data/w.bin": "weights",
        "words.txt": "a b c",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.fixture
def refused(walle, folder):
    """Runs ``walle task`` where it must fail; returns its one line."""

    def run(*arguments):
        before = sorted(folder.rglob("*"))
        done = walle("task", *arguments, cwd=folder, check=False)
        assert done.returncode == 3, done.stderr
        assert not done.stdout
        assert sorted(folder.rglob("*")) == before
        (line,) = done.stderr.splitlines()
        return line

    return run


def test_the_ipv_task_is_a_small_package(walle, tmp_path):
    done = walle("task", "build", IPV, cwd=tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "ipv-1.walle"
    assert done.stdout.startswith(f"made ipv-1.walle for {CURRENT_TAG}: ")
    assert path.stat().st_size < 100_000
    package = read_package(path)
    assert package.manifest.task.triggers == (("page_exit",),)
    assert package.program().task == "ipv"
    data = path.read_bytes()
    walle("task", "build", "ipv", "-o", tmp_path / "again", cwd=tmp_path)
    assert (tmp_path / "again").read_bytes() == data


def test_a_task_file_with_resources_is_packed_whole(walle, folder):
    done = walle("task", "build", folder / "visit.yaml", "--json", cwd=folder)
    facts = json.loads(done.stdout)
    assert facts["path"] == "visit-2024_05_b.walle"
    assert (facts["task"], facts["version"]) == ("visit", "2024/05 b")
    assert facts["interpreters"] == [CURRENT_TAG]
    package = read_package(folder / facts["path"])
    assert facts["sizes"]["total"]["packed_bytes"] == package.size_bytes
    assert package.resource("model/weights.bin") == b"weights"
    assert package.resource("words.txt") == b"a b c"
    task = package.manifest.task
    assert (task.version, task.state_version, task.file) == ("2024/05 b", 3, "visit.py")
    assert task.triggers == (("page_enter", "page_exit"), ("click",))
    assert (task.fields, task.config) == (("item",), {"gap": 5})
    assert task.limits.wall_time_ms == 2_000


def test_the_manifest_is_shown(walle, folder):
    walle("task", "build", "visit.yaml", "-o", "v.walle", cwd=folder)
    whole = walle("task", "show", "v.walle", cwd=folder).stdout
    line = walle("task", "show", "v.walle", "--json", cwd=folder).stdout
    assert json.loads(whole) == json.loads(line)
    assert len(line.splitlines()) == 1 < len(whole.splitlines())
    manifest = json.loads(line)
    assert (manifest["format"], manifest["guestApi"]) == (2, 1)
    assert list(manifest["resources"]) == ["model/weights.bin", "words.txt"]
    assert manifest["interpreters"] == [CURRENT_TAG]
    assert str(folder) not in whole


@pytest.mark.full  # a whole interpreter is packed: twenty seconds of CPU
def test_the_size_beside_a_whole_interpreter(walle, folder):
    walle("task", "build", "visit.yaml", "-o", "v.walle", cwd=folder)
    report = json.loads(walle("task", "size", "v.walle", "--json", cwd=folder).stdout)
    assert report["package"]["total"]["packed_bytes"] == (folder / "v.walle").stat().st_size
    assert report["package"]["resources"]["raw_bytes"] == len("weights" + "a b c")
    for part in ("runtime", "full"):
        for key in ("raw_bytes", "packed_bytes"):
            sizes = [size[key] for name, size in report[part].items() if name != "total"]
            assert report[part]["total"][key] == sum(sizes)
    assert all(size["packed_bytes"] > 0 for size in report["full"].values() if size["raw_bytes"])
    assert report["runtime"]["interpreter"] == report["full"]["interpreter"]
    percent = report["percent_of_full"]
    # in bytes: a package is too small a share for the two digits of a percentage
    weighed = [report[part]["total"]["packed_bytes"] for part in ("package", "runtime", "full")]
    assert 0 < weighed[0] < weighed[1] < weighed[0] + weighed[1] < weighed[2]
    assert 0 <= percent["package"] < percent["runtime"] <= percent["device"] < 100
    table = walle("task", "size", "visit.yaml", cwd=folder).stdout
    for words in ("package visit 2024/05 b", "guest library", "base modules", "standard library"):
        assert words in table
    assert not (folder / "visit-2024_05_b.walle").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("scripts/visit.py", "visit.py", "visit.py cannot be read"),
        ("words.txt}", "none.txt}", "the resource 'words.txt' cannot be read"),
        ("words.txt}", "data}", "Is a directory: correct spec.resources"),
        ("words.txt:", "../words.txt:", "spec.resources['../words.txt']: bad key"),
        ("words.txt}", "5}", "spec.resources['words.txt']: expected text"),
        ("kind: Task", "kind: Tusk", "unknown kind"),
    ],
)
def test_a_definition_that_cannot_be_packed_is_refused(refused, folder, old, new, words):
    (folder / "visit.yaml").write_text(TASK.replace(old, new))
    assert words in refused("build", "visit.yaml")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("x = 1", "define def run"),
        ("import socket\ndef run(ctx, page): pass", "visit.py:1: task 'visit': imports 'socket'"),
        ("def run(ctx, page) pass", "is not valid Python"),
        ("\udcff".encode("utf-8", "surrogateescape"), "cannot be read"),
    ],
)
def test_a_script_that_may_not_run_is_refused(refused, folder, script, words):
    (folder / "scripts/visit.py").write_bytes(
        script if isinstance(script, bytes) else f"{script}\ndef migrate(old): pass".encode()
    )
    assert words in refused("build", "visit.yaml")


def test_which_task_of_a_pipeline_is_asked_for(walle, refused, folder):
    second = TASK.replace("name: visit", "name: other")
    pipeline = (
        "apiVersion: walle/v1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n"
        "  source: {connector: files, path: words.txt, format: csv, device: a, time: int(a), "
        "events: [{kind: click, page: \"'p'\"}]}\n  tasks: [{task: visit}, {task: other}]\n---\n"
    )
    (folder / "p.yaml").write_text(f"{pipeline}{TASK}---\n{second}")
    assert refused("build", "p.yaml").endswith(
        "p.yaml: has the tasks visit, other: choose one with --task"
    )
    assert "there is no task 'visti', did you mean 'visit'?" in refused(
        "build", "p.yaml", "--task", "visti"
    )
    walle("task", "build", "p.yaml", "--task", "other", "-o", "o.walle", cwd=folder)
    assert read_package(folder / "o.walle").manifest.task.name == "other"


def test_a_package_that_is_cut_altered_or_not_there_is_refused(walle, refused, folder):
    walle("task", "build", "visit.yaml", "-o", "v.walle", cwd=folder)
    data = (folder / "v.walle").read_bytes()
    (folder / "v.walle").write_bytes(data[:-1])
    for verb in ("show", "size"):
        assert "v.walle: ends without its seal" in refused(verb, "v.walle")
    at = data.index(b"words.txt") + len(b"words.txt") + 3
    (folder / "v.walle").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert "v.walle: expected the seal " in refused("show", "v.walle")
    assert "none.walle: cannot be read: No such file" in refused("size", "none.walle")
    assert "is not a task package" in refused("show", "visit.yaml")


def test_where_it_cannot_be_written_is_said(refused):
    assert "cannot be written: " in refused("build", "visit.yaml", "-o", "no/such/folder.walle")
    assert "cannot be written: " in refused("build", "visit.yaml", "-o", "data")
    assert "cannot be written: " in refused("build", "visit.yaml", "-o", ".")


def test_an_interpreter_that_is_not_there_is_named(refused):
    assert "there is no interpreter 'python9.9'" in refused("build", "visit.yaml", "-p", "9.9")


def test_another_name_of_this_interpreter_adds_nothing(walle, folder):
    walle("task", "build", "visit.yaml", "-o", "a.walle", cwd=folder)
    walle("task", "build", "visit.yaml", "-o", "b.walle", "--python", sys.executable, cwd=folder)
    assert (folder / "a.walle").read_bytes() == (folder / "b.walle").read_bytes()
