"""Misbehaviour of scripts: one clear line each, under every policy."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram

pytestmark = pytest.mark.vm

every_policy = pytest.mark.parametrize("isolation", ["shared", "device", "process"])

FAILING = {
    "a result that is not JSON": ("ctx.emit({'x': {1, 2}})", "TypeError", "not JSON"),
    "a result that is no dict": ("ctx.emit('x')", "TypeError", "a feature is a dict"),
    "a function as a result": ("ctx.emit({'f': run})", "TypeError", "not JSON"),
    "a result that contains itself": (
        "a = {}; a['a'] = a; ctx.emit(a)",
        "RecursionError",
        "contains itself",
    ),
    "a result over its limit": (
        "ctx.emit({'x': 'y' * 5_000})",
        "ValueError",
        "limits.outputBytes",
    ),
    "a state that is not JSON": ("ctx.state.put('k', object())", "TypeError", "not JSON"),
    "recursion": ("def f(): return f()\n    f()", "RecursionError", "maximum recursion depth"),
    "deep recursion in C": (
        "x = []\n    for _ in range(200_000): x = [x]\n    repr(x)",
        "RecursionError",
        "RecursionError",
    ),
    "an exception with values that cannot be pickled": (
        "raise ValueError(lambda: 1, (n for n in ()), ctx)",
        "ValueError",
        "lambda",
    ),
    "an exception whose class is local": (
        "class Odd(Exception): pass\n    raise Odd(1)",
        "Odd",
        "Odd: 1",
    ),
    "an exception without text": (
        "class Mute(Exception):\n        def __str__(self): raise ValueError(1)\n    raise Mute",
        "Mute",
        "its text could not be made",
    ),
    "an exception of many lines": ("raise ValueError('one\\ntwo')", "ValueError", "one two"),
    "a huge exception": ("raise ValueError('x' * 10_000_000)", "ValueError", "xxx"),
    "an exit": ("raise SystemExit(0)", "SystemExit", "0"),
    "an interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt", "KeyboardInterrupt"),
}


@every_policy
def test_it_fails_its_run_with_one_line_that_names_the_place(page: Any, isolation: Any) -> None:
    for name, (body, error, words) in FAILING.items():
        source = f"def run(ctx, page):\n    if not page.trigger.get('bad'): return\n    {body}\n"
        # long enough for a machine that does much else
        limits = RunLimits(output_bytes=1_000, wall_time_ms=30_000)
        program = TaskProgram("t", "v", source, "t.py", limits=limits, isolation=isolation)
        groups: Any = [(d, {}, [(1, 0, page({"bad": d == "b"}))]) for d in "abc"]
        with VmPool({"t": program}, 1) as pool:
            runs = [group.runs[0] for group in pool.run("t", groups)]
            assert [run.ok for run in runs] == [True, False, True], name
            assert runs[1].error == error, name
            message = runs[1].message
            assert message.startswith("t.py:"), name
            assert words in message, (name, message)
            assert len(message.splitlines()) == 1, (name, message)
            assert len(message) <= 2_000, name
            assert pool.counts.crashes == 0, name


REFUSED = {
    "no run": ("x = 1", "define def run"),
    "an import outside the list": ("import os\ndef run(ctx, page): pass", "imports 'os'"),
    "reading stdin": ("def run(ctx, page): input()", "no terminal"),
    "stdin by its module": ("import sys\ndef run(ctx, page): sys.stdin", "imports 'sys'"),
    "a signal": ("import signal\ndef run(ctx, page): pass", "imports 'signal'"),
    "a body that raises": ("1 / 0\ndef run(ctx, page): pass", "raises when loaded"),
    "a body that recurses": ("def f(): f()\nf()\ndef run(ctx, page): pass", "recursion"),
}


@every_policy
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_one_line_when_it_is_loaded(name: str, isolation: Any) -> None:
    source, words = REFUSED[name]
    with (
        pytest.raises(ScriptError) as caught,
        VmPool({"t": TaskProgram("t", "v", source, "t.py", isolation=isolation)}, 1) as pool,
    ):
        pool.run("t", [("d", {}, [(1, 0, ())])])
    message = str(caught.value)
    assert message.startswith("t.py:")
    assert words in message
    assert len(message.splitlines()) == 1


@every_policy
def test_what_is_printed_is_logged_and_nowhere_else(page: Any, isolation: Any, capfd: Any) -> None:
    source = "def run(ctx, page):\n    print('a', 1, sep='-', end='!'); ctx.emit({})\n"
    program = TaskProgram("t", "v", source, "t.py", isolation=isolation)
    with VmPool({"t": program}, 1) as pool:
        (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert group.runs[0].logs == [("info", "a-1!")]
    assert capfd.readouterr() == ("", "")


SIGNALLED = """
import signal
caught = []
signal.signal(signal.SIGTERM, lambda *_: caught.append("SIGTERM"))
source = "def run(ctx, page):\\n    for _ in range(3_000_000): pass\\n    ctx.emit({})"
with VmPool(task(source, isolation=sys.argv[1]), 1) as pool:
    ok = pool.run("t", groups("d"))[0].runs[0].ok
    print("ready", flush=True)
    while not caught:
        ok = pool.run("t", groups("d"))[0].runs[0].ok
    print(caught, ok, pool.run("t", groups("d"))[0].runs[0].ok, pool.counts.crashes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@every_policy
def test_a_signal_is_the_hosts_and_harms_no_run(child_code: str, isolation: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", child_code + SIGNALLED, isolation], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "ready\n"
        host.send_signal(signal.SIGTERM)
        assert host.stdout.readline() == "['SIGTERM'] True True 0\n"
        assert host.wait(60) == 0
