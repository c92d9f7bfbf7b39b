"""A pipeline that runs a package gives the bytes of one that runs the source."""

import gzip
import hashlib
import io
import itertools
import json
import shutil
import signal
import zipfile
from pathlib import Path

import pytest

from walle_stream.app.queries.query import canonical_state
from walle_stream.app.queries.replay import dead_letters
from walle_stream.vm.package.reader import SCRIPT as MEMBER
from walle_stream.vm.package.reader import SEAL

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "configs/template"
ROWS = 3_000
TASK = """\
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: "7"
  stateVersion: 2
  script: visit.py
  triggers: [{sequence: [page_exit]}]
  config: {greeting: hello}
  limits: {wallTime: 20s}
  isolation: shared
  resources: {words/en.txt: words.txt}
"""
SCRIPT = """\
import statistics


def run(ctx, page):
    past = ctx.state.get("dwell_ms", [])
    past.append(page.dwell_ms)
    ctx.state.put("dwell_ms", past)
    words = ctx.resource("words/en.txt").decode()
    ctx.emit({"words": words, "mean": statistics.fmean(past), "greeting": ctx.config["greeting"]})


def migrate(old):
    return {"dwell_ms": [each * 1000 for each in old.get("dwell_s", [])]}
"""


def bytes_of(data_dir):
    return b"\n".join(canonical_state(data_dir))


# the IPV task


@pytest.fixture(scope="module")
def device_yaml(tmp_path_factory):
    """The shipped pipeline without its task, in a folder of its own."""
    text = (ROOT / "configs/ipv.yaml").read_text().split("---\n")[0]
    folder = tmp_path_factory.mktemp("device")
    (folder / "device.yaml").write_text(text.replace("- task: ipv", "- package: ipv-1.walle"))
    return folder / "device.yaml"


@pytest.fixture
def device(walle, device_yaml):
    """A device's pipeline: there is neither script nor definition of the task."""
    if not device_yaml.with_name("ipv-1.walle").exists():
        walle("task", "build", "ipv", cwd=device_yaml.parent)
    return device_yaml


@pytest.fixture(scope="module")
def part(sample, tmp_path_factory):
    """The first rows of the sample."""
    path = tmp_path_factory.mktemp("feed") / "part.csv"
    with gzip.open(sample, "rb") as rows:
        path.write_bytes(b"".join(itertools.islice(rows, ROWS + 1)))
    return path


@pytest.fixture
def run_part(walle, part, tmp_path):
    """Runs a pipeline over those rows in a data directory; returns the report."""

    def run(pipeline, *arguments, **options):
        settings = ("--set", f"spec.source.path={part}", "--set", "spec.runtime.batchEvents=50")
        command = ("run", pipeline, *settings, "--data-dir", tmp_path / "d", "--json", *arguments)
        done = walle(*command, **options)
        return json.loads(done.stdout.splitlines()[-1]) if not done.returncode else done

    return run


@pytest.fixture(scope="module")
def reference():
    """What ``of_source`` keeps."""
    return {}


@pytest.fixture
def of_source(reference, run_part, tmp_path):
    """Report and bytes of the source task over those rows; run once."""
    if not reference:
        report = run_part("ipv")
        reference["report"], reference["bytes"] = report, bytes_of(tmp_path / "d")
        shutil.rmtree(tmp_path / "d")
    assert reference["report"]["features"] > 1_000
    return reference


COUNTS = ("source_rows", "events", "page_sequences", "task_runs", "features", "encoded_bytes")


@pytest.mark.vm
def test_a_package_gives_the_features_and_the_state_of_its_source(
    device, run_part, of_source, tmp_path
):
    report = run_part(device)
    assert {name: report[name] for name in COUNTS} == {
        name: of_source["report"][name] for name in COUNTS
    }
    assert bytes_of(tmp_path / "d") == of_source["bytes"]


@pytest.mark.parametrize(("is_package_first", "cut"), [(False, 1), (True, 1_750)])
def test_source_and_package_go_on_where_the_other_stopped(
    device, run_part, of_source, tmp_path, is_package_first, cut
):
    first, second = (device, "ipv") if is_package_first else ("ipv", device)
    run_part(first, "--limit", cut)
    run_part(second, "--limit", 500)
    report = run_part(first)
    assert report["source_rows"] == ROWS
    assert report["cloud"]["features"] == report["features"]
    assert report["cloud"]["gaps"] == 0
    assert bytes_of(tmp_path / "d") == of_source["bytes"]


@pytest.mark.parametrize(
    "point",
    [
        "commit.after:40",
        *(
            pytest.param(point, marks=pytest.mark.slow)
            for point in ("commit.before:40", "cloud.before:3")
        ),
    ],
)
def test_a_killed_source_run_goes_on_as_a_package(device, run_part, of_source, tmp_path, point):
    done = run_part("ipv", environ={"WALLE_CRASH": point}, check=False)
    assert done.returncode == -signal.SIGKILL
    report = run_part(device)
    assert report["source_rows"] == ROWS
    assert report["cloud"]["features"] == report["features"]
    assert report["cloud"]["gaps"] == 0
    assert bytes_of(tmp_path / "d") == of_source["bytes"]


# a task with state, resources and standard modules


@pytest.fixture
def folder(walle, tmp_path):
    """A folder with a task's source, its package and pipelines that name either."""
    for name, content in {"visit.yaml": TASK, "visit.py": SCRIPT, "words.txt": "a b c"}.items():
        (tmp_path / name).write_text(content)
    shutil.copy(TEMPLATE / "visits.csv", tmp_path)
    text = (TEMPLATE / "pipeline.yaml").read_text().split("---\n")[0]
    (tmp_path / "source.yaml").write_text(text.replace("- task: visit", "- file: visit.yaml"))
    (tmp_path / "device.yaml").write_text(text.replace("- task: visit", "- package: visit-7.walle"))
    walle("task", "build", "visit.yaml", cwd=tmp_path)
    return tmp_path


@pytest.fixture
def features(walle, folder):
    """Runs a pipeline of the folder and returns its features."""

    def run(name, *arguments, data_dir="d"):
        walle("run", folder / name, "--data-dir", folder / data_dir, *arguments)
        lines = walle("features", "list", "--data-dir", folder / data_dir, "--json").stdout
        return [json.loads(line) for line in lines.splitlines()]

    return run


def without_source(folder):
    for name in ("visit.yaml", "visit.py", "words.txt"):
        (folder / name).unlink()


@pytest.mark.vm
@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_resources_config_and_modules_come_from_the_package(walle, folder, features, isolation):
    (folder / "visit.yaml").write_text(TASK.replace("shared", isolation))
    walle("task", "build", "visit.yaml", cwd=folder)
    expected = features("source.yaml", data_dir="of-source")
    without_source(folder)
    found = features("device.yaml")
    assert found == expected
    assert len(found) > 0
    assert {(each["task"], each["task_version"]) for each in found} == {("visit", "7")}
    assert {each["feature"]["words"] for each in found} == {"a b c"}
    assert {each["feature"]["greeting"] for each in found} == {"hello"}
    assert bytes_of(folder / "d") == bytes_of(folder / "of-source")


@pytest.mark.vm
def test_a_package_migrates_the_state_that_a_source_left(folder, features):
    visits = [("enter", 0), ("exit", 1_000), ("enter", 2_000), ("exit", 5_000)]
    rows = [f"phone-1,{1_700_000_000_000 + ms},product,{action}," for action, ms in visits]
    (folder / "visits.csv").write_text("\n".join(["device,time_ms,page,action,item", *rows]))
    old = "def run(ctx, page):\n    ctx.state.put('dwell_s', [7])\n"
    (folder / "visit.py").write_text(old)
    (folder / "visit.yaml").write_text(TASK.replace("stateVersion: 2", "stateVersion: 1"))
    assert features("source.yaml", "--limit", "2") == []
    (found,) = features("device.yaml")
    assert found["feature"]["mean"] == (7_000 + 3_000) / 2


def test_a_task_and_a_package_run_beside_each_other(walle, folder, features):
    (folder / "both.yaml").write_text(
        (folder / "device.yaml")
        .read_text()
        .replace("- package", "- file: second.yaml\n    - package")
    )
    (folder / "second.yaml").write_text(TASK.replace("name: visit", "name: second"))
    found = features("both.yaml")
    by_task = {
        name: [e["feature"] for e in found if e["task"] == name] for name in ("visit", "second")
    }
    assert by_task["visit"] == by_task["second"] != []
    shown = json.loads(walle("validate", folder / "both.yaml", "--json").stdout)
    expected = {"kind": "Pipeline", "name": "visits", "tasks": ["second", "visit"]}
    assert shown == {**expected, "warnings": []}


def test_only_the_reason_of_a_failed_run_differs(walle, folder):
    failing = SCRIPT.replace("    past =", "    assert page.page_id != 'product', 'no'\n    past =")
    (folder / "visit.py").write_text(failing)
    walle("task", "build", "visit.yaml", cwd=folder)
    walle("run", folder / "source.yaml", "--data-dir", folder / "of-source", "--allow-empty")
    without_source(folder)
    walle("run", folder / "device.yaml", "--data-dir", folder / "d", "--allow-empty")
    letters = list(dead_letters(folder / "d"))
    assert letters
    assert {each.reason for each in letters} == {"visit.py:5: AssertionError: no"}
    of_source = bytes_of(folder / "of-source")
    assert bytes_of(folder / "d") == of_source.replace(f"{folder}/visit.py".encode(), b"visit.py")


# what is wrong


def cut(data):
    return data[:-1]


def altered(data):
    at = data.index(b"words/en.txt") + len("words/en.txt") + 3
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def past_the_gate(data):
    """The same with a script that no builder of ours would pack."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in members:
            archive.writestr(info, b"import os\n" + content if info.filename == MEMBER else content)
        archive.comment = SEAL + bytes(64)
    made = stream.getvalue()[:-64]
    return made + hashlib.sha256(made).hexdigest().encode()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "visit-7.walle: ends without its seal, at "),
        (altered, "visit-7.walle: expected the seal "),
        (lambda data: data[: len(data) // 2], "visit-7.walle: ends without its seal, at "),
        (
            lambda _: b"apiVersion: walle/v1\n",
            "visit-7.walle: is not a task package: expected a zip",
        ),
        (lambda _: b"", "visit-7.walle: is not a task package: expected a zip"),
        (past_the_gate, "visit-7.walle: visit.py:1: task 'visit': imports 'os', which a script "),
    ],
)
def test_a_package_that_cannot_run_is_one_line_with_its_place(walle, folder, damage, words):
    package = folder / "visit-7.walle"
    package.write_bytes(damage(package.read_bytes()))
    pipeline = folder / "device.yaml"
    number = pipeline.read_text().splitlines().index("    - package: visit-7.walle") + 1
    for command in (("validate", pipeline), ("run", pipeline, "--data-dir", folder / "d")):
        done = walle(*command, check=False)
        assert done.returncode == 3
        (line,) = done.stderr.splitlines()
        place = f"walle: {pipeline}:{number}:16: spec.tasks[0].package: "
        assert line.startswith(f"{place}{folder}/{words}")
    assert not (folder / "d").exists()
    done = walle("validate", package, check=False)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"walle: {folder}/{words}")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("visit-7.walle", "visit-8.walle", ".package: there is no file 'visit-8.walle' in "),
        ("visit-7.walle", ".", "Is a directory; check the path"),
        ("- package", "- {}\n    - package", ": expected either 'task' (a name), "),
        ("- package", "- file: visit.yaml\n      package", "found 'file' and 'package'"),
        ("- package", "- file: visit.yaml\n    - package", "the task 'visit' stands here twice"),
        ("- package", "- task: visit\n    - package", "there is no Task 'visit' in the file"),
        ("- package", "- pack", "unknown key 'pack'"),
    ],
)
def test_a_wrong_reference_is_one_line_with_its_place(walle, folder, old, new, words):
    pipeline = folder / "device.yaml"
    pipeline.write_text(pipeline.read_text().replace(old, new))
    for command in (("validate", pipeline), ("run", pipeline, "--data-dir", folder / "d")):
        done = walle(*command, check=False)
        assert done.returncode == 3
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"walle: {pipeline}:")
        assert words in line
    assert not (folder / "d").exists()


def test_a_package_is_validated_by_itself_and_put_in_by_an_override(walle, folder, features):
    shown = walle("validate", folder / "visit-7.walle").stdout
    assert shown.endswith("visit-7.walle: valid, Package 'visit'\n")
    override = f"spec.tasks=[{{package: {folder}/visit-7.walle}}]"
    by_override = features("source.yaml", "--set", override)
    assert by_override == features("device.yaml", data_dir="other") != []


def test_a_package_is_not_packed_again(walle, folder):
    done = walle("task", "build", folder / "device.yaml", cwd=folder, check=False)
    assert done.returncode == 3
    assert "the task 'visit' is already a package: give the YAML" in done.stderr
