import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from walle_stream.errors import VmCrashedError
from walle_stream.vm import virtual_machine
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram, pack_program

if TYPE_CHECKING:
    from walle_stream.vm.results import DeviceGroup

pytestmark = pytest.mark.vm

LEAKS = """
import collections, decimal, fractions, json, statistics, string, enum, functools, datetime
STORE = []
def default(found=[]): return found
class Keeper:
    found = []
    secret = None
def outer():
    cell = []
    def inner(): return cell
    return inner
CLOSURE = outer()
@functools.cache
def cached(key): return []
def attempt(action):
    try:
        action()
    except (AttributeError, TypeError): pass
def hide(secret):
    global LATER
    LATER = secret
    STORE.append(secret); default().append(secret); Keeper.found.append(secret)
    Keeper.secret = secret; CLOSURE().append(secret); cached("k").append(secret)
    hide.secret = secret
    for holder in (json, json.dumps, json.JSONEncoder, collections.Counter, fractions.Fraction,
                   string.Template, statistics.NormalDist, enum.Enum, decimal.Decimal, len, dict,
                   datetime.datetime, print, getattr, type, Exception, json.loads):
        attempt(lambda: setattr(holder, "secret", secret))
    def stores():
        json.secret = secret
    def stores_function():
        json.dumps.secret = secret
    def stores_class():
        collections.Counter.secret = secret
    def deletes():
        del json.loads
    for action in (stores, stores_function, stores_class, deletes): attempt(action)
def run(ctx, page):
    found = [len(STORE), len(default()), len(Keeper.found), Keeper.secret, len(CLOSURE()),
             len(cached("k")), hasattr(hide, "secret"), hasattr(json, "loads")]
    found.append([hasattr(holder, "secret") for holder in (
        json, json.dumps, json.JSONEncoder, collections.Counter, fractions.Fraction,
        string.Template, statistics.NormalDist, enum.Enum, type(page), type(ctx),
        type(page.trigger), type(ctx.state), type(ctx.random), ctx.emit, print, getattr, type)])
    try: found.append(LATER)
    except NameError: found.append("no name")
    ctx.emit({"found": found})
    hide(ctx.device_id)
    attempt(lambda: setattr(type(page), "secret", 1))
    attempt(lambda: setattr(type(ctx), "secret", 1))
    attempt(lambda: setattr(type(ctx.random), "secret", 1))
    attempt(lambda: setattr(ctx.emit, "secret", 1))
"""
CLEAN = [0, 0, 0, None, 0, 0, False, True, [False] * 17, "no name"]


def test_nothing_is_shared_between_runs_and_devices(open_pool: Any, page: Any) -> None:
    pool = open_pool(LEAKS)
    groups: list[DeviceGroup] = [
        (name, {}, [(1, 0, page()), (2, 0, page())]) for name in ("a", "b")
    ]
    results = pool.run("t", groups) + pool.run("t", groups)
    runs = [run for group in results for run in group.runs]
    assert [run.message for run in runs] == [""] * 8
    assert [json.loads(run.emits[0][0])["found"] for run in runs] == [CLEAN] * 8


@pytest.mark.parametrize(
    ("imports", "line", "words"),
    [
        ("json", "json.x = 1", "read-only"),
        ("json", "json.dumps = None", "read-only"),
        ("json", "del json.loads", "read-only"),
        ("json", "json.dumps.x = 1", "read-only"),
        ("json", "setattr(json, 'x', 1)", "read-only"),
        ("json", "delattr(json, 'loads')", "read-only"),
        ("collections", "collections.Counter.x = 1", "read-only"),
        ("dataclasses, fractions", "dataclasses.dataclass(fractions.Fraction)", "read-only"),
        ("functools, fractions", "functools.total_ordering(fractions.Fraction)", "read-only"),
        ("functools, json", "functools.wraps(len)(json.dumps)", "read-only"),
        ("json", "page.x = 1", "read-only"),
        ("json", "ctx.device_id = 'b'", "read-only"),
        ("json", "page.trigger.id = 'b'", "read-only"),
        ("json", "type(page.trigger).id = 'b'", "read-only"),
        ("json", "for page.x in (1,): pass", "read-only"),
        ("json", "getattr(page, '__cl' + 'ass__')", "may not use"),
        ("json", "getattr((i for i in ()), 'gi_' + 'frame')", "may not use"),
        ("json", "'{0.__class__}'.format(page)", "may not use"),
        ("json", "'{0:{1.gi_frame}}'.format(1, (i for i in ()))", "may not use"),
        ("json", "str.format('{0.gi_frame}', (i for i in ()))", "may not use"),
        ("json", "'{a.f_back}'.format_map({'a': 1})", "may not use"),
        ("json", "getattr('{0.gi_frame}', 'format')(1)", "may not use"),
        ("json", "list(map(str.format, ['{0.gi_frame}'], [1]))", "may not use"),
        ("json", "class B(type('x')): pass\n    getattr(B(), type('N', (), {}))", "positional"),
        ("json", "json.decoder", "no attribute"),
        ("statistics", "statistics.random", "no attribute"),
        ("datetime", "datetime.sys", "no attribute"),
        ("hashlib", "hashlib.algorithms_available", "no attribute"),
    ],
)
def test_what_outlives_a_run_cannot_be_changed_nor_reached(
    run_script: Any, imports: str, line: str, words: str
) -> None:
    (run,) = run_script(f"import {imports}\ndef run(ctx, page):\n    {line}\n").runs
    assert not run.ok
    assert words in run.message


def test_no_proxy_holds_a_module_or_a_mutable_container() -> None:
    from types import ModuleType  # noqa: PLC0415 - next to their only use

    from walle_stream.vm.guest.modules import exported_names  # noqa: PLC0415 - the same
    from walle_stream.vm.guest.rules import ALLOWED_MODULES  # noqa: PLC0415 - the same

    for name in ALLOWED_MODULES:
        exported = exported_names(name)
        assert exported
        for value in exported.values():
            assert not isinstance(value, (ModuleType, dict, list, set, bytearray))


def test_a_finaliser_that_gets_past_the_gate_reaches_no_other_run(page: Any) -> None:
    source = """
def lingering(ctx):
    try:
        yield
    finally:
        print("late"); ctx.emit({"late": 1}); ctx.state.put("late", 1)
def run(ctx, page):
    ring = []
    generator = lingering(ctx)
    next(generator)
    ring.append((ring, generator))
    ctx.emit({"n": len([[] for _ in range(3000)])})
"""
    code = compile(source, "t.py", "exec", dont_inherit=True)
    program = pack_program(TaskProgram("t", "v", "", "t.py"), code, (), shares_globals=False)
    runs = [(n, 0, page()) for n in range(100)]
    with VmPool({}, 1) as pool:
        pool.install(program)
        (group,) = pool.run("t", [("d", {}, runs)])
    assert group.state == {}
    assert {(len(run.emits), len(run.logs)) for run in group.runs} == {(1, 0)}


def test_the_guest_loads_no_installed_package(
    open_pool: Any, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = compile(
        "import sys\nraise ValueError(sorted(m.partition('.')[0] for m in sys.modules), sys.path)",
        "x",
        "exec",
    )
    monkeypatch.setattr(virtual_machine, "_SERVE", code)
    pool = open_pool("import json, dataclasses, statistics\ndef run(ctx, page): pass\n")
    with pytest.raises(VmCrashedError) as caught:
        pool.run("t", [("d", {}, [(1, 0, page())])])
    text = caught.value.message
    assert "walle_guest" in text
    banned = (
        "walle_stream",
        "numpy",
        "rocksdict",
        "msgspec",
        "pydantic",
        "yaml",
        "rich",
        "zstandard",
    )
    assert [
        name for name in (*banned, "threading", "ctypes", "site-packages") if f"'{name}" in text
    ] == []
    assert "site-packages" not in text


def test_importing_walle_stream_loads_no_vm_part() -> None:
    code = "import sys, walle_stream; print([m for m in sys.modules if 'walle_stream.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
