"""Tasks that are ready to run, from source and from a package."""

import pytest

from walle_stream.actors.turns.attempts import FailurePolicy
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.programs.programs import compile_task, unpack_task
from walle_stream.spec.models import TaskLimits, TaskSpec
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.reader import PackagedTask
from walle_stream.vm.pool import VmPool

pytestmark = pytest.mark.vm

TASK = """\
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: "3"
  stateVersion: 2
  script: visit.py
  triggers: [{sequence: [page_enter, page_exit]}, {sequence: [click]}]
  fields: [item]
  config: {zeta: 1.5, gap: [5, null, true]}
  resources: {words.txt: words.txt}
  limits: {wallTime: 2s, strikes: 5, steps: 1000, stateBytes: 5KB, emits: 7, logLines: 3}
  isolation: device
"""
SCRIPT = """\
def run(ctx, page):
    ctx.emit({"words": ctx.resource("words.txt").decode()})


def migrate(old):
    return old
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in {"visit.yaml": TASK, "visit.py": SCRIPT, "words.txt": "a b"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "visit.walle").write_bytes(package_task(find_task(tmp_path / "visit.yaml")))
    return tmp_path


def test_both_ways_give_the_same_task(folder):
    source = compile_task(find_task(folder / "visit.yaml"))
    packaged = unpack_task(folder / "visit.walle")
    for name in packaged.__struct_fields__:
        if name not in {"program", "package"}:
            assert getattr(packaged, name) == getattr(source, name), name
    assert packaged.triggers == (("page_enter", "page_exit"), ("click",))
    # the script's name without folders, and what is imported from the package
    for name in set(packaged.program.__struct_fields__) - {"file", "packed"}:
        assert getattr(packaged.program, name) == getattr(source.program, name), name
    assert packaged.program.file == "visit.py"


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("", (1, 100, True)),
        ("  onError: {retry: {attempts: 3, backoff: 2s}}\n", (3, 2_000, True)),
        ("  onError: {deadLetter: false}\n", (1, 100, False)),
    ],
)
def test_what_becomes_of_a_failed_run_travels_in_the_package(folder, line, values):
    (folder / "visit.yaml").write_text(TASK + line)
    definition = find_task(folder / "visit.yaml")
    data = package_task(definition)
    (folder / "visit.walle").write_bytes(data)
    packaged = unpack_task(folder / "visit.walle").on_error
    assert packaged == compile_task(definition).on_error == FailurePolicy(*values)


def test_a_manifest_has_every_key_of_a_task():
    elsewhere = {"script", "resources"}  # members of the package
    assert TaskSpec.model_fields.keys() - elsewhere <= set(PackagedTask.__struct_fields__)
    assert TaskLimits.model_fields.keys() == set(RunLimits.__struct_fields__)


def test_a_package_runs_as_its_source_does(folder):
    rows = [("page_exit", "page_exit", 9, 9, {"item": "i"})]
    page = ("video", "v1@1", "exit", 9, rows[0], rows)
    with VmPool({"visit": unpack_task(folder / "visit.walle").program}, 1) as vms:
        (group,) = vms.run("visit", [("device-1", {}, [(1, 1_500, page)])])
    assert group.runs[0].emits == [(b'{"words":"a b"}', b"")]
