"""A task's requirements of a machine, and the trust in packages."""

import logging

import msgspec
import pytest

from walle_stream.app.programs import isolation
from walle_stream.app.programs.isolation import admit, check_machine, note_built
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.programs.programs import compile_task, unpack_task
from walle_stream.errors import IsolationError
from walle_stream.spec.loader import ISOLATION
from walle_stream.vm.containment import measures_here
from walle_stream.vm.pool import VmPool
from walle_stream.vm.process.guard import MEASURES

pytestmark = pytest.mark.vm

TASK = """\
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: "3"
  script: visit.py
  triggers: [{sequence: [click]}]
  limits: {wallTime: 1h}
  isolation: {policy: process, memory: 100MiB, cpu: 20ms, require: [file_limits]}
"""
ASKS = ("shared", "device", "process")


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "visit.yaml").write_text(TASK)
    (tmp_path / "visit.py").write_text("def run(ctx, page):\n    while True: pass\n")
    return find_task(tmp_path / "visit.yaml")


@pytest.fixture
def package(task):
    return package_task(task)


@pytest.fixture
def asking(package):
    """Makes the task of the package, asking for another isolation."""

    def make(policy):
        ready = unpack_task(package)
        program = msgspec.structs.replace(ready.program, isolation=policy)
        return msgspec.structs.replace(ready, program=program)

    return make


def test_confinement_travels_in_a_package_as_in_a_definition(task, package):
    source, packaged = compile_task(task).program, unpack_task(package).program
    assert source.isolation == packaged.isolation == "process"
    assert source.confinement == packaged.confinement
    assert source.confinement.memory_bytes == 100 * 2**20
    assert source.confinement.required == ("file_limits",)


@pytest.mark.parametrize("asked", ASKS)
def test_a_package_of_nobody_runs_in_processes_and_a_line_says_so(asking, caplog, asked):
    with caplog.at_level(logging.WARNING):
        found = admit(asking(asked), "shared", is_signed=False)
    assert found.program.isolation == "process"
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (asked != "process")
    assert all("not signed" in line and asked in line for line in lines)


@pytest.mark.parametrize("asked", ASKS)
@pytest.mark.parametrize("floor", ASKS)
@pytest.mark.parametrize("is_signed", [True, False])
def test_what_is_trusted_runs_as_it_asks_above_the_floor(asking, package, asked, floor, is_signed):
    if not is_signed:
        note_built(package)
        note_built(package)
    found = admit(asking(asked), floor, is_signed=is_signed).program.isolation
    assert found == max(asked, floor, key=ASKS.index)


def test_where_nothing_can_be_noted_nothing_is_trusted(asking, package, tmp_path):
    (tmp_path / "state").write_text("a file")
    note_built(package)
    assert admit(asking("shared"), "shared", is_signed=False).program.isolation == "process"


def test_a_measure_that_is_missing_refuses_to_start_with_its_place(task, monkeypatch):
    ready, places = compile_task(task), {("visit", ISOLATION): "p.yaml:9:3"}
    check_machine([ready], places)  # everywhere where there are process VMs
    monkeypatch.setattr(isolation, "measures_here", frozenset)
    with pytest.raises(IsolationError) as caught:
        check_machine([ready], places)
    error = caught.value
    assert (error.task, error.place) == ("visit", "p.yaml:9:3")
    assert error.message.startswith("p.yaml:9:3: ")
    assert "file_limits" in error.message


def test_the_measures_of_this_machine_are_known():
    assert "file_limits" in measures_here()
    assert measures_here() <= set(MEASURES)


def test_a_run_ends_at_its_cpu_time(task, page):
    with VmPool({"visit": compile_task(task).program}, 1) as pool:
        [group] = pool.run("visit", [("d", {}, [(1, 7, page)])])
        assert group.runs[0].error == "RunStopped"
        assert "0.02 s of CPU time (isolation.cpu)" in group.runs[0].message


@pytest.fixture
def page():
    row = ("click", "click", 1, 1, None)
    return ("p", "p@1", "none", None, row, [row])
