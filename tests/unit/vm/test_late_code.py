"""Code of a script that runs where none is expected: its texts, keys, finalisers and questions."""

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.errors import ScriptError
from walle_stream.vm import virtual_machine
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.process import machine as process_machine
from walle_stream.vm.program import TaskProgram, compile_program, pack_program
from walle_stream.vm.services import HostServices

if TYPE_CHECKING:
    from walle_stream.vm.results import DeviceGroup

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("cpu_clock")]

HANGS_S = 120.0
ISOLATIONS = ("shared", "process")
TEXT_LOOPS = """
class Late(Exception):
    def __str__(self):
        while True: pass
def run(ctx, page):
    if ctx.device_id == "bad": raise Late
"""
FINALISER_LOOPS = """
KEPT = []
def lingering():
    try: yield
    finally:
        while True: pass
def run(ctx, page):
    if ctx.device_id == "bad":
        KEPT.append(lingering())
        next(KEPT[0])
"""
LOOP = "while True: pass"
LATE = """
import collections.abc, heapq
class Own:
    def __iter__(self): return self
    def __next__(self): return 1
    def __len__(self): return 1
    def close(self):
        while True: pass
def delegating(own): yield from own
def viewed(own): return iter(collections.abc.KeysView(own))
def left(own):
    merged = heapq.merge(own)
    next(merged)
    return merged
def run(ctx, page):
    if ctx.device_id == "bad":
        for make in (delegating, viewed, left):
            own = Own()
            own.kept = make(own)
            next(own.kept)
            next(own.kept)
    elif ctx.device_id == "good": kept = [[] for _ in range(300_000)]  # the collector looks
"""
RECURSION = """
def run(ctx, page):
    def again():
        try: again()
        finally: again()
    if ctx.device_id == "bad": again()
"""
ASKS = """
def run(ctx, page):
    while ctx.device_id == "bad":
        try: ctx.tensor([1.0]).exp().tolist()
        except RuntimeError: pass  # a slow host: asked for ten times the wall time
"""


def errors_of(page: Any, source: str, isolation: Any, limits: RunLimits) -> list[list[str]]:
    program = TaskProgram("t", "v", source, "t.py", isolation=isolation, limits=limits)
    groups: list[DeviceGroup] = [
        (name, {"k": b"1"}, [(1, 0, page()), (2, 0, page())]) for name in ("bad", "good")
    ]
    with VmPool({"t": program}, 1, services=HostServices(EngineEvaluator(NumpyBackend()))) as pool:
        results = pool.run("t", groups)
        # a process that has no core for a second obeys too late, and is killed
        assert pool.counts.crashes == 0 or isolation == "process"
    return [[run.error for run in group.runs] for group in results]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("source", [TEXT_LOOPS, RECURSION, ASKS])
def test_what_never_ends_is_stopped_wherever_it_is(
    page: Any, quick_limits: Any, source: str, isolation: Any
) -> None:
    # a process that asks is killed after a while in which no run ended
    policy = "shared" if source == ASKS else isolation
    found = errors_of(page, source, isolation, quick_limits(policy, 300, strikes=1))
    was_killed = isolation == "process" and found[0][0] == "Quarantined"
    assert found == [["Quarantined" if was_killed else "RunStopped", "Quarantined"], ["", ""]]


def test_steps_of_late_code_are_those_of_its_own_run(page: Any) -> None:
    found = errors_of(page, TEXT_LOOPS, "shared", RunLimits(steps=1_000, strikes=1))
    assert found[0][1] == "Quarantined"
    assert found[1] == ["", ""]


@pytest.mark.parametrize(
    "limits", [RunLimits(wall_time_ms=300, strikes=1), RunLimits(steps=1_000, strikes=1)]
)
def test_a_finaliser_that_gets_past_the_gate_is_of_its_own_run(page: Any, limits: Any) -> None:
    code = compile(FINALISER_LOOPS, "t.py", "exec", dont_inherit=True)
    task = TaskProgram("t", "v", "", "t.py", limits=limits)
    groups: Any = [(name, {}, [(n, 0, page()) for n in (1, 2)]) for name in ("bad", "good")]
    with VmPool({}, 1) as pool:
        pool.install(pack_program(task, code, (), shares_globals=False))
        found = [[run.error for run in group.runs] for group in pool.run("t", groups)]
        assert pool.counts.crashes == 0
    assert found[0][1] == "Quarantined"
    assert found[1] == ["", ""]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_the_collector_closes_runs_nothing(
    page: Any, isolation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = RunLimits(wall_time_ms=10_000, strikes=1)
    # a VM that hangs as it is destroyed hangs for far longer than any machine is slow
    for module in (virtual_machine, process_machine):
        monkeypatch.setattr(module, "DESTROY_TIMEOUT_S", 2 * HANGS_S)
    began = time.monotonic()
    assert errors_of(page, LATE, isolation, limits) == [["", ""], ["", ""]]
    assert time.monotonic() - began < HANGS_S


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"try: yield\n    finally:\n        {LOOP}", "line 2: yields inside a 'try'"),
        ("try: yield from ()\n    except GeneratorExit: pass", "line 2: yields inside a 'try'"),
        ("try: 1\n    except* OSError: yield", "line 3: yields inside a 'try'"),
        ("try: 1\n    except OSError: 1\n    else: yield", "line 4: yields inside a 'try'"),
        ("try: 1\n    finally: yield", "line 3: yields inside a 'try'"),
        ("try:\n        for _ in (): [1 for _ in (yield)]\n    finally: 1", "line 3: yields"),
        ("try:\n        def g(a=(yield)): 1\n    finally: 1", "line 3: yields inside a 'try'"),
        ("try: lambda a=(yield): 1\n    finally: 1", "line 2: yields inside a 'try'"),
        ("with a as b: yield", "line 2: yields inside a 'with'"),
        ("async def g(): await a", "line 2: uses 'async'"),
        ("return (b async for b in a)", "line 2: uses 'async'"),
        ("return (await b for b in a)", "line 2: uses 'async'"),
    ],
)
def test_a_script_is_suspended_only_where_closing_it_runs_nothing(body: str, words: str) -> None:
    source = f"def f(a):\n    {body}\ndef run(ctx, page): pass\n"
    with pytest.raises(ScriptError) as caught:
        compile_program(TaskProgram("t", "v", source, "t.py"))
    assert words in f"line {caught.value.line}: {caught.value.message.partition("'t': ")[2]}"


@pytest.mark.parametrize(
    "body",
    [
        "try:\n        def g(): yield\n    finally: 1",
        "try: return lambda: (yield)\n    finally: 1",
        "try: return (b for b in a)\n    finally: 1",
        "with a as b: b = [*b]\n    yield from b",
        "try: a = a()\n    except OSError: return\n    yield a",
    ],
)
def test_a_script_may_yield_everywhere_else(body: str) -> None:
    source = f"def f(a):\n    {body}\ndef run(ctx, page): pass\n"
    assert compile_program(TaskProgram("t", "v", source, "t.py")).packed


def test_yield_from_gives_what_it_gave(run_script: Any) -> None:
    source = """
import heapq
from collections import UserDict, deque
class Own:
    def __iter__(self): return iter("ab")
def part():
    got = yield 1
    return [got]
def f():
    got = yield from part()
    yield from got
    for each in ((2,), {3: 4}, range(5, 6), deque([7]), Own(), map(int, "8"), ""):
        yield from each
def run(ctx, page):
    g = f()
    ctx.emit({"f": [next(g), g.send("sent"), *g], "m": [*heapq.merge(Own(), "b", key=ord)],
              "r": [*heapq.merge([1], (3, 2), reverse=True)], "k": [*UserDict(a=1).keys()]})
    try: next(h for h in [part()]).throw(KeyError(1))
    except KeyError as error: ctx.emit({"e": error.args[0]})
"""
    (run,) = run_script(source).runs
    emitted = [json.loads(feature) for feature, _ in run.emits]
    assert emitted == [
        {
            "f": [1, "sent", 2, 3, 5, 7, "a", "b", 8],
            "m": ["a", "b", "b"],
            "r": [3, 2, 1],
            "k": ["a"],
        },
        {"e": 1},
    ]


def test_a_key_that_is_a_text_of_its_own_kind_is_refused(page: Any) -> None:
    source = """
class Key(str):
    def encode(self, *_): raise ValueError
def run(ctx, page):
    if ctx.device_id == "bad": ctx.state.delete(Key("k"))
"""
    found = errors_of(page, source, "shared", RunLimits())
    assert found == [["TypeError", "TypeError"], ["", ""]]


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        ("ctx.emit({}); ctx.call_cloud('s', {})", True),
        ("ctx.emit({}); ctx.call_cloud('s', {}); ctx.emit({})", False),
        ("ctx.call_cloud('s', {}); ctx.emit({}); ctx.call_cloud('s', {})", False),
    ],
)
def test_a_call_counts_as_a_feature_does(run_script: Any, body: str, is_fine: bool) -> None:
    (run,) = run_script(f"def run(ctx, page): {body}", limits=RunLimits(emits=2)).runs
    assert run.ok is is_fine


@pytest.mark.parametrize(("limit", "is_fine"), [(21, True), (20, False)])
def test_a_state_s_keys_count_in_bytes(run_script: Any, limit: int, is_fine: bool) -> None:
    limits = RunLimits(state_bytes=limit)
    (run,) = run_script("def run(ctx, page): ctx.state.put('\u00fc' * 10, 1)", limits=limits).runs
    assert run.ok is is_fine
