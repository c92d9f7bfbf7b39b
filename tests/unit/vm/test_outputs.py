"""Outputs that the guest library would never write: a failed run each, whoever made them."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from walle_stream.vm.limits import RunLimits
from walle_stream.vm.outputs import MALFORMED
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram, compile_program, pack_program
from walle_stream.vm.results import GroupResult

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(sys.platform == "win32", reason="process VMs need POSIX"),
]

LIMITS = RunLimits(output_bytes=100_000, emits=5, log_lines=3, state_bytes=10_000)

COUNT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.emit({"n": n})
    if page.trigger["x"] == "lie":
        LIE
"""

FEATURES = {
    "two lines": b'{"a":1}\n{"device_id":"other"}',
    "two objects": b'{"a":1}{"b":2}',
    "no UTF-8": b'{"a":"\xff"}',
    "a key twice": b'{"a":1,"a":2}',
    "NaN": b'{"a":NaN}',
    "beyond a double": b'{"a":1e999}',
    "too many digits": b'{"a":' + b"9" * 5000 + b"}",
    "no object": b"1",
    "nothing": b"",
    "too deep": b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
}
LIES = {
    **{name: f"ctx._emitted_ += ({data!r}, b'')" for name, data in FEATURES.items()},
    "a long encoding": "ctx._emitted_ += (b'{}', b'x' * 65536)",
    "many features": "ctx._emitted_ += [b'{}', b''] * 5",
    "many bytes": 'ctx._emitted_ += [b\'{"a":"%s"}\' % (b"x" * 60_000), b\'\'] * 2',
    "a call that is no object": "ctx.log; ctx._called_ = [b's', b'[]']",
    "a call of two lines": "ctx.log; ctx._called_ = [b's', b'{}\\n{}']",
    "a call of nobody": "ctx.log; ctx._called_ = [b'', b'{}']",
    "a call that forges a line": "ctx.log; ctx._called_ = [b'a\\nb', b'{}']",
    "a call that is not UTF-8": "ctx.log; ctx._called_ = [b'\\xff', b'{}']",
    "a long name of a service": "ctx.log; ctx._called_ = [b's' * 201, b'{}']",
    "many calls": "ctx.log; ctx._called_ = [b's', b'{}'] * 5",
    "many lines": "ctx.log._lines_ += [(0, 'x')] * 5",
    "a long line": "ctx.log._lines_.append((0, 'x' * 12_001))",
    "state of two values": "ctx.state._overlay_['s'] = b'1 2'",
    "state that is not UTF-8": "ctx.state._overlay_['s'] = b'\"\\xff\"'",
    "state with a key twice": "ctx.state._overlay_['s'] = b'{\"a\":1,\"a\":2}'",
    "state that is nothing": "ctx.state._overlay_['s'] = b''",
    "a long key of state": "ctx.state._overlay_['s' * 1025] = b'1'",
    "a layout that is no number": "ctx.state._overlay_[''] = b'x'",
    "much state": "ctx.state._overlay_['s'] = b'1' * 4_000; ctx.state._overlay_['t'] = b'\"%s\"' % (b'x' * 8_000)",
}
# what the guest library counts is counted in the guest, which is not to be believed
HIDDEN = "ctx.state._written_bytes_ = 0; "


def ungated(source: str, **given: Any) -> Any:
    program = TaskProgram("t", "v1", source, "t.py", {}, LIMITS, **given)
    code = compile(source, "t.py", "exec")
    return pack_program(program, code, [], shares_globals=False)


@pytest.fixture(params=["shared", "process"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(isolation: str, page: Any) -> Iterator[Callable[..., list[GroupResult]]]:
    """Runs a program, gated where it is text, on devices with these triggers each."""
    pools: list[VmPool] = []

    def run_(program: Any, *devices: tuple[str, ...]) -> list[GroupResult]:
        if isinstance(program, str):
            program = compile_program(TaskProgram("t", "v1", program, "t.py", {}, LIMITS))
        program = msgspec.structs.replace(program, isolation=isolation)
        pools.append(VmPool({"t": program}, 1))
        groups: Any = [
            (f"d{number}", {}, [(n, 7, page({"x": x})) for n, x in enumerate(triggers)])
            for number, triggers in enumerate(devices)
        ]
        return pools[-1].run("t", groups)

    yield run_
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_is_the_failure_of_its_run_alone(run: Any, lie: str) -> None:
    program = ungated(COUNT.replace("LIE", HIDDEN + lie))
    first, second, third = run(program, ("", "lie", ""), ("",), ("lie",))
    assert [each.error for each in first.runs] == ["", MALFORMED, ""]
    assert [each.emits for each in first.runs] == [[(b'{"n":1}', b"")], [], [(b'{"n":2}', b"")]]
    assert first.state == {"n": b"2"}
    assert first.runs[1].message.isprintable()
    assert second.runs[0].emits == [(b'{"n":1}', b"")]
    assert (third.runs[0].error, third.state) == (MALFORMED, {})


TWICE = {
    "a dict of a kind of its own": """
class Twice(dict):
    def items(self): return [("a", 1), ("a", 2), ("a", 3)]
def run(ctx, page): ctx.emit(Twice(a=1))
""",
    "a number and its text": "def run(ctx, page): ctx.emit({1: 'a', '1': 'b'})",
    "in a question": "def run(ctx, page): ctx.call_cloud('s', {None: 1, 'null': 2})",
    "in the state": "def run(ctx, page): ctx.state.put('s', [{True: 1, 'true': 2}])",
}


@pytest.mark.parametrize("source", TWICE.values(), ids=TWICE.keys())
def test_a_script_that_writes_a_key_twice_is_told_so(run: Any, source: str) -> None:
    [group] = run(source, ("",))
    assert (group.runs[0].error, group.state) == (MALFORMED, {})
    assert "stands twice" in group.runs[0].message


def test_what_a_failed_run_says_is_one_line(run: Any) -> None:
    source = """
def run(ctx, page):
    module = ctx.emit.__func__.__globals__["__builtins__"]["__import__"]("sys").modules
    session = module["walle_guest.session"].Session
    session._described = lambda self, error: ("a\\nb" * 1000, "x\\n\\x1b[2J" + "y" * 100_000)
    raise ValueError
"""
    [group] = run(ungated(source), ("",))
    [result] = group.runs
    assert result.error[:3] == "a?b"
    assert result.error.isprintable()
    assert result.message.isprintable()
    assert len(result.message) < 20_000


def test_what_scripts_do_in_good_faith_passes(run: Any) -> None:
    source = """
def run(ctx, page):
    ctx.emit({"float": 1e-5, "large": 2**100, "text": "a\\n\\x1b:\\u2028", "rows": [{"a": [1]}] * 200})
    ctx.log.info("two\\nlines " + "\\udc80" * 3000)
    ctx.call_cloud("\\u00e4", {"q": None})
    ctx.state.put("k" * 1024, [1.5e300, {"a": {}}])
    ctx.state.put("n", None)
"""
    [group] = run(source, ("", ""))
    assert [each.error for each in group.runs] == ["", ""]
    assert len(group.state) == 2


ENDS = {
    "a frame that does not add up": "session.__class__._finish = forge",
    "an end without a word": "session._pulse[0] = 0; load('os')._exit(0)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_process_that_blames_nobody_costs_its_device_alone(page: Any, end: str) -> None:
    source = f"""
def forge(self, number, words, parts):
    self._result = (number, [9] * 3, [], 0)
    self._write()
def run(ctx, page):
    load = ctx.emit.__func__.__globals__["__builtins__"]["__import__"]
    session = load("sys")._getframe(1).f_locals["self"]
    if page.trigger["x"] == "lie":
        {end}
    ctx.emit({{}})
"""
    program = msgspec.structs.replace(ungated(source), isolation="process")
    with VmPool({"t": program}, 1) as pool:
        found = pool.run(
            "t",
            [(f"d{n}", {}, [(1, 7, page({"x": "lie" if n == 3 else ""}))] * 2) for n in range(7)],
        )
    errors = [[run.error for run in group.runs] for group in found]
    assert errors == [["", ""]] * 3 + [["Quarantined"] * 2] + [["", ""]] * 3
