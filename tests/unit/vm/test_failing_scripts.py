from typing import Any

import pytest

from walle_stream.errors import ScriptError

pytestmark = pytest.mark.vm

FAULTS = """
import json
def deep(n): return deep(n + 1)
class Odd(BaseException):
    def __str__(self): raise KeyError("no text")
class Long(Exception):
    pass
def run(ctx, page):
    ctx.emit({"before": 1})
    ctx.state.put("touched", page.trigger["how"])
    ctx.state.delete("kept")
    print("logged")
    how = page.trigger["how"]
    if how == "fine": return 5
    if how == "exit": raise SystemExit(3)
    if how == "interrupt": raise KeyboardInterrupt
    if how == "generator": raise GeneratorExit
    if how == "memory": raise MemoryError
    if how == "huge": return "x" * (1 << 60)
    if how == "recursion": deep(0)
    if how == "odd": raise Odd
    if how == "long": raise Long("ä" * 100_000)
    if how == "surrogate": raise Long("\\ud800")
    if how == "group": raise ExceptionGroup("g", [ValueError(1)])
    if how == "chain":
        try: 1 / 0
        except ZeroDivisionError as error: raise LookupError("chained") from error
    if how == "json": json.loads("{")
    if how == "stop": raise StopIteration
    if how == "import": import os
    if how == "name": nothing
    page.trigger["missing"]
"""
HOWS = (
    *("exit", "interrupt", "generator", "memory", "huge", "recursion", "odd", "long", "surrogate"),
    *("group", "chain", "json", "stop", "name", "key"),
)


@pytest.fixture
def outcomes(run_script: Any) -> Any:
    contents = [{"how": how} for how in HOWS]
    source = FAULTS.replace('    if how == "import": import os\n', "")
    group = run_script(source, *contents, {"how": "fine"}, state={"kept": b"1"})
    return group, dict(zip((*HOWS, "fine"), group.runs, strict=True))


def test_no_exception_of_a_script_ends_more_than_its_run(outcomes: Any) -> None:
    _, runs = outcomes
    assert [name for name, run in runs.items() if run.ok] == ["fine"]
    assert {name: runs[name].error for name in ("exit", "memory", "odd", "key", "group")} == {
        "exit": "SystemExit",
        "memory": "MemoryError",
        "odd": "Odd",
        "key": "KeyError",
        "group": "ExceptionGroup",
    }


def test_a_failed_run_leaves_no_emit_and_no_state_but_its_log(outcomes: Any) -> None:
    group, runs = outcomes
    assert group.state == {"touched": b'"fine"', "kept": None}
    for name, run in runs.items():
        assert run.logs == [("info", "logged")]
        assert bool(run.emits) == (name == "fine")


def test_messages_name_file_and_line_and_are_bounded(outcomes: Any) -> None:
    _, runs = outcomes
    last = len(FAULTS.splitlines()) - 1
    assert runs["key"].message == f"t.py:{last}: KeyError: 'missing'"
    assert runs["odd"].message.endswith("its text could not be made")
    assert len(runs["long"].message) == 2_000
    assert runs["surrogate"].message.endswith("\\ud800")
    assert all(run.message.startswith("t.py:") for run in runs.values() if not run.ok)


def test_a_script_whose_body_raises_is_refused_when_loaded(open_pool: Any) -> None:
    with pytest.raises(ScriptError, match=r"scripts/t.py:2: .*ZeroDivisionError") as caught:
        open_pool("x = 0\ny = 1 / x\ndef run(ctx, page): pass\n")
    assert caught.value.line == 2


def test_a_module_outside_the_list_is_refused_at_run_time_too(run_script: Any) -> None:
    # the gate sees import statements; this is what the guest does about the rest
    source = """
import json
def run(ctx, page):
    from json import JSONDecoder
    ctx.emit({"has": hasattr(json, "decoder")})
    json.decoder
"""
    (run,) = run_script(source).runs
    assert (run.ok, run.error) == (False, "AttributeError")


def test_the_guests_import_refuses_what_the_script_did_not_declare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from walle_stream.vm.guest import modules  # noqa: PLC0415 - the guest's own part

    monkeypatch.setattr(modules, "seal", lambda: None)  # the interpreter of the tests stays open
    importer = modules.make_importer(["math"], {})
    assert importer("math").sqrt(4) == 2
    for name, level in (("os", 0), ("json", 0), ("math", 1), ("sys", 0), ("time", 1)):
        with pytest.raises(ImportError, match="may not import"):
            importer(name, {}, {}, (), level)
    # what C code asks for on behalf of a script is empty for the script itself
    assert not hasattr(importer("time", {}, {}, ("time",), 0), "time")
