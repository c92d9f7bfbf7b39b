"""States of an older layout, and the task's own files."""

import json
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram, compile_program

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("cpu_clock")]

RUN = """
def run(ctx, page):
    if page.trigger.get("raises"):
        ctx.state.put("half", 1)
        raise ValueError("not now")
    if page.trigger.get("puts"):
        ctx.state.put("last", page.trigger["puts"])
    ctx.emit({key: ctx.state.get(key) for key in ctx.state.keys()})
"""
MIGRATE = """
def migrate(old):
    return {"total": old.get("n", 0) * 10, "from": old.version}
"""


@pytest.fixture
def run_all(page: Any) -> Any:
    """Runs a script over a state, a run per contents; returns state changes and features."""

    def run(source: str, version: int, state: dict[str, bytes], *contents: dict[str, Any]) -> Any:
        program = TaskProgram("t", "v", source, "t.py", state_version=version)
        with VmPool({"t": program}, 1) as pool:
            runs = [(n, 0, page(given or None)) for n, given in enumerate(contents or ({},))]
            (group,) = pool.run("t", [("d", state, runs)])
            assert pool.counts.crashes == 0
            return group.state, [
                json.loads(run.emits[0][0]) if run.ok else run.message for run in group.runs
            ]

    return run


def test_an_old_state_is_made_anew_before_the_first_run_that_succeeds(run_all: Any) -> None:
    state, found = run_all(RUN + MIGRATE, 2, {"n": b"7"}, {"raises": 1}, {"puts": 5}, {})
    assert found[0] == "t.py:5: ValueError: not now"
    assert found[1:] == [{"from": 1, "last": 5, "total": 70}] * 2
    assert state == {"n": None, "total": b"70", "from": b"1", "last": b"5", "": b"2"}


def test_a_state_of_the_same_layout_is_left_alone(run_all: Any) -> None:
    for version, state in ((1, {"n": b"7"}), (2, {"n": b"7", "": b"2"})):
        assert run_all(RUN + MIGRATE, version, state) == ({}, [{"n": 7}])


def test_a_new_device_begins_with_the_task_s_layout(run_all: Any) -> None:
    assert run_all(RUN + MIGRATE, 3, {}, {}, {"puts": 1}) == (
        {"last": b"1", "": b"3"},
        [{}, {"last": 1}],
    )
    # what deletes of an older version left behind is no state
    assert run_all(RUN + MIGRATE, 1, {"": b"2"}, {"puts": 1})[0] == {"last": b"1", "": None}


def test_the_layout_s_number_is_hidden_from_scripts(run_all: Any) -> None:
    look = "def run(ctx, page): ctx.emit({'k': ctx.state.keys(), 'v': ctx.state.get(''), 'i': '' in ctx.state})"
    state = {"n": b"7", "": b"2"}
    assert run_all(look + MIGRATE, 2, state)[1] == [{"k": ["n"], "v": None, "i": False}]


@pytest.mark.parametrize(
    ("migrate", "words"),
    [
        (
            "def migrate(old): return 5",
            "TypeError: migrate returns the new state as a dict, not int",
        ),
        ("def migrate(old): raise KeyError('x')", "t.py:10: KeyError: 'x'"),
        ("def migrate(old): return {'a': {1, 2}}", "is not JSON"),
        ("def migrate(old): return {5: 1}", "a state key is text, not int"),
        ("def migrate(old):\n    while True: pass", "RunStopped"),
    ],
)
def test_a_migration_that_fails_fails_the_run_and_changes_nothing(
    page: Any, migrate: str, words: str
) -> None:
    program = TaskProgram(
        "t", "v", f"{RUN}\n{migrate}", "t.py", limits=RunLimits(wall_time_ms=50), state_version=2
    )
    with VmPool({"t": program}, 1) as pool:
        (group,) = pool.run("t", [("d", {"n": b"7"}, [(1, 0, page())])])
    assert group.state == {}
    assert words in group.runs[0].message


def test_a_state_of_a_later_layout_is_refused_as_it_is(run_all: Any) -> None:
    state, found = run_all(RUN + MIGRATE, 1, {"n": b"7", "": b"2"}, {"puts": 1})
    assert state == {}
    (message,) = found
    assert message == (
        "t.py: ValueError: a state of version 2 was left by a later version of this task, whose "
        "stateVersion is 1: install the later version again, or delete the state"
    )


def test_a_later_layout_needs_a_way_to_it() -> None:
    with pytest.raises(ScriptError, match=r"no function 'migrate': its stateVersion needs"):
        compile_program(TaskProgram("t", "v", RUN, "t.py", state_version=2))


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        *((f"def migrate({each}):", "does not take") for each in ("", "state, old", "*, old")),
        ("async def migrate(old):", "neither awaited"),
    ],
)
def test_what_cannot_be_called_is_no_way_to_it(head: str, problem: str) -> None:
    program = TaskProgram("t", "v", f"{RUN}\n{head}\n    return {{}}\n", "t.py", state_version=2)
    with pytest.raises(ScriptError, match=rf"t\.py:\d+: task 't': 'migrate' .*{problem}"):
        compile_program(program)


@pytest.mark.parametrize("parameters", ["old", "*old", "old, more=1", "old=None, /"])
def test_any_way_to_take_one_argument_will_do(parameters: str) -> None:
    source = f"{RUN}\ndef migrate({parameters}):\n    return {{}}\n"
    compile_program(TaskProgram("t", "v", source, "t.py", state_version=2))


def test_a_task_reads_its_own_files(page: Any) -> None:
    source = """
def run(ctx, page):
    words = ctx.resource("words.txt").decode().split()
    ctx.emit({"words": words, "size": len(ctx.resource("model/w.bin"))})
    ctx.resource("other")
"""
    resources = {"words.txt": b"a b", "model/w.bin": bytes(1000)}
    program = TaskProgram("t", "v", source, "t.py", resources=resources)
    with VmPool({"t": program}, 1) as pool:
        (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert group.runs[0].message == (
        "t.py:5: KeyError: \"there is no resource 'other' (spec.resources): this task has "
        'model/w.bin, words.txt"'
    )
    with VmPool({"t": TaskProgram("t", "v", source[:-26], "t.py", resources=resources)}, 1) as pool:
        (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert json.loads(group.runs[0].emits[0][0]) == {"words": ["a", "b"], "size": 1000}
