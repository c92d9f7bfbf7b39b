"""Bounds of a run: steps, state, and scripts that lie about what they hand over."""

import os
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.memory import machine_bytes, resident_bytes
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram

pytestmark = pytest.mark.vm

LOOP = """
def run(ctx, page):
    for n in range(page.trigger["n"]):
        ctx.state.put("n", n)
    ctx.emit({"n": n})
"""


def test_steps_are_counted_per_run_and_end_it_at_the_same_step_always(run_script: Any) -> None:
    limits = RunLimits(steps=100, strikes=1_000)
    given = [{"n": n} for n in (50, 99, 100, 5_000, 99)]
    for _ in range(2):
        runs = run_script(LOOP, *given, limits=limits).runs
        assert [run.ok for run in runs] == [True, True, False, False, True]
        assert {run.error for run in runs if not run.ok} == {"StepsExceeded"}
        assert runs[2].message == (
            "t.py:4: StepsExceeded: made more than 100 steps (limits.steps) and was stopped"
        )


ENDLESS = {
    "catches": """while True:
            try:
                while True: pass
            except BaseException: pass""",
    "recursion": """def f(n): return f(n - 1) + f(n - 2) if n > 1 else 1
        f(60)""",
    "generator": """def f():
            while True:
                yield 1
        while True:
            try:
                for _ in f(): pass
            except BaseException: pass""",
    "returns": """try:
            while True: pass
        except BaseException:
            return""",
    "lambda": "f = lambda: f() if True else 0\n        while True:\n            try: f()\n"
    "            except RecursionError: pass",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_no_way_of_going_on_escapes_the_count(open_pool: Any, page: Any, body: str) -> None:
    source = (
        f"def run(ctx, page):\n    if page.trigger.get('go'):\n        {body}\n    ctx.emit({{}})"
    )
    pool = open_pool(source, limits=RunLimits(steps=2_000, wall_time_ms=60_000, strikes=9))
    groups = [(f"d{n}", {}, [(1, 0, page({"go": n == 1}))]) for n in range(3)]
    for _ in range(2):
        first, second, third = (group.runs[0] for group in pool.run("t", groups))
        assert (first.ok, second.error, third.ok) == (True, "StepsExceeded", True)
    assert pool.counts.stopped == 0  # the watchdog had nothing to do


def test_a_device_that_makes_too_many_steps_is_quarantined(open_pool: Any, page: Any) -> None:
    pool = open_pool(LOOP, limits=RunLimits(steps=10, strikes=2))
    for expected in ("StepsExceeded", "StepsExceeded", "Quarantined"):
        bad, good = pool.run(
            "t", [(d, {}, [(1, 0, page({"n": n}))]) for d, n in (("x", 99), ("y", 3))]
        )
        assert (bad.runs[0].error, good.runs[0].ok) == (expected, True)


def test_a_body_that_makes_too_many_steps_is_refused(open_pool: Any) -> None:

    source = "TABLE = tuple(n * n for n in range(1_000))\ndef run(ctx, page): pass"
    with pytest.raises(ScriptError, match="raises when loaded: StepsExceeded"):
        open_pool(source, limits=RunLimits(steps=100))


PUT = """
def run(ctx, page):
    for key, size in page.trigger["puts"]:
        if size < 0:
            ctx.state.delete(key)
        else:
            ctx.state.put(key, "x" * size)
"""


def test_a_run_that_lets_a_state_grow_too_large_fails_alone(run_script: Any) -> None:
    given = [
        [["a", 40]],
        [["b", 40], ["b", 41], ["b", 39]],  # written over: only the last one counts
        [["c", 20]],
        [["a", -1], ["c", 20]],
        [["d", 200]],
    ]
    limits = RunLimits(state_bytes=100)
    group = run_script(PUT, *({"puts": puts} for puts in given), limits=limits)
    assert [run.ok for run in group.runs] == [True, True, False, True, False]
    assert group.runs[2].message == (
        "t.py: ValueError: a device's state may have 100 bytes, this run leaves 108 "
        "(limits.stateBytes)"
    )
    assert sorted(group.state) == ["a", "b", "c"]
    assert group.state["a"] is None


def test_a_state_that_is_too_large_already_may_shrink_but_not_grow(run_script: Any) -> None:
    given = [{"puts": [["k", 90]]}, {"puts": [["k", 120]]}, {"puts": [["old", -1]]}]
    state = {"old": b'"%s"' % (b"y" * 200), "k": b'"%s"' % (b"y" * 100)}
    group = run_script(PUT, *given, state=state, limits=RunLimits(state_bytes=100))
    assert [run.ok for run in group.runs] == [True, False, True]


LIARS = {
    "text": """
class Liar(str):
    def __str__(self): return self
    def __len__(self): return 5
    def __getitem__(self, at): return 7
    def __mod__(self, values): return self
    def encode(self, *_): return 7
ctx.log.info(Liar("a text"), Liar("b"))
ctx.log.info(Liar("another"))
print(Liar("printed"), sep=Liar(","))
ctx.emit({Liar("k"): Liar("v")})
""",
    "bytes": """
class Liar(bytes):
    def __bytes__(self): return self
    def __len__(self): return 70_000
ctx.emit({}, Liar(b"abc"))
""",
    "dict": """
class Liar(dict):
    def items(self): return [(1, 2), ("a", [3])]
    def __len__(self): return -1
ctx.emit(Liar(x=1))
ctx.state.put("k", Liar(y=1))
""",
    "error": """
class Name(type):
    __name__ = 7
class Liar(Exception, metaclass=Name):
    def __str__(self): return 7
raise Liar("x")
""",
    "number": """
class Liar(int):
    def __repr__(self): return 7
    def __str__(self): return 8
ctx.emit({"n": Liar(3), "f": [Liar(4)]})
ctx.state.put("n", Liar(5))
""",
}


@pytest.mark.parametrize("body", LIARS.values(), ids=LIARS.keys())
def test_an_object_that_lies_about_itself_hurts_no_one(
    open_pool: Any, page: Any, body: str
) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = (
        f"def run(ctx, page):\n  if page.trigger.get('lies'):\n{lines}  ctx.emit({{'ok': 1}})\n"
    )
    pool = open_pool(source)
    groups = [(f"d{n}", {}, [(1, 0, page({"lies": n == 1}))]) for n in range(3)]
    results = pool.run("t", groups)
    assert (results[0].runs[0].ok, results[2].runs[0].ok) == (True, True)
    assert pool.counts.crashes == 0
    for line in results[1].runs[0].logs:
        assert type(line[1]) is str


@pytest.mark.parametrize(
    "code",
    [
        "ctx._emitted_.append(7)",
        "ctx.state._overlay_ = {}",
        "getattr(ctx, '_emitted_').append(7)",
        "ctx.log._lines_.append((9, 'x'))",
        "'{0._emitted_}'.format(ctx)",
        "page._input_",
    ],
)
def test_what_a_run_is_made_of_is_hidden_from_its_script(
    open_pool: Any, page: Any, code: str
) -> None:

    try:
        pool = open_pool(f"def run(ctx, page):\n    {code}")
    except ScriptError:
        return
    (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert group.runs[0].error == "AttributeError"
    assert pool.counts.crashes == 0


EATS = """
def run(ctx, page):
    kept = []
    while page.trigger.get("eats"):
        try:
            kept.append(bytes(1_000_000) + b"x")
        except BaseException:
            pass
    ctx.emit({})
"""


def test_runs_are_stopped_when_the_process_has_too_much_memory(page: Any) -> None:
    program = TaskProgram("t", "v", EATS, "t.py", limits=RunLimits(wall_time_ms=60_000))
    bound = resident_bytes() + 100_000_000
    with VmPool({"t": program}, PoolLimits(memory_bytes=bound)) as pool:
        groups = [(f"d{n}", {}, [(1, 0, page({"eats": n == 1}))]) for n in range(3)]
        results = pool.run("t", groups)
        assert [group.runs[0].error for group in results] == ["", "RunStopped", ""]
        assert (
            results[1]
            .runs[0]
            .message.endswith(
                "RunStopped: ran while its process used too much memory (runtime.memory) and was stopped"
            )
        )
        # its VM goes, and what it held with it
        assert (pool.counts.stopped, pool.counts.destroyed) == (1, 1)
        assert pool.run("t", groups[:1])[0].runs[0].ok
        assert resident_bytes() < bound


def test_what_a_machine_has_is_the_least_that_anyone_says() -> None:
    assert 2**24 < machine_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
