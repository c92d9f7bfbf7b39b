import sys
from types import SimpleNamespace
from typing import Any

import pytest

from walle_stream.errors import VmCrashedError, VmStartError
from walle_stream.vm import interpreters
from walle_stream.vm.interpreters import HOST_IMPORTS, Interpreter, ensure_supported, live_count

pytestmark = pytest.mark.vm


def code(text: str) -> Any:
    return compile(text, "x", "exec")


@pytest.fixture
def interpreter() -> Any:
    made = Interpreter()
    yield made
    made.destroy()


def test_this_python_passes_the_self_test() -> None:
    ensure_supported()


def test_memory_is_shared_both_ways(interpreter: Interpreter) -> None:
    buffer = bytearray(b"abc")
    interpreter.share(view=memoryview(buffer))
    assert interpreter.execute(code("view[0] = view[2]")) is None
    assert buffer == b"cbc"


def test_an_exception_comes_back_as_text(interpreter: Interpreter) -> None:
    assert "no such" in (interpreter.execute(code("raise LookupError('no such')")) or "")


def test_interpreters_do_not_share_modules(interpreter: Interpreter) -> None:
    assert interpreter.execute(code("import json; json.mark = 1")) is None
    other = Interpreter()
    try:
        assert other.execute(code("import json; assert not hasattr(json, 'mark')")) is None
    finally:
        other.destroy()


def test_a_destroyed_one_is_not_counted_and_cannot_be_entered() -> None:
    before = live_count()
    made = Interpreter()
    assert live_count() == before + 1
    made.destroy()
    made.destroy()
    assert live_count() == before
    with pytest.raises(VmCrashedError, match="could not be entered"):
        made.execute(code("pass"))


def test_one_that_is_gone_is_not_asked_for_anything() -> None:
    made = Interpreter()
    assert made.run_soon(b"pass")
    made.destroy()
    assert not made.run_soon(b"pass")


def test_a_python_without_interpreters_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = interpreters._Registry()
    monkeypatch.setattr(interpreters, "_registry", registry)
    monkeypatch.setitem(sys.modules, "_interpreters", None)
    monkeypatch.setitem(sys.modules, "concurrent.interpreters", None)
    with pytest.raises(VmStartError, match=r"use CPython 3\.13 or newer"):
        ensure_supported()


@pytest.mark.parametrize("answer", [None, "something else"])
def test_an_api_that_does_nothing_fails_the_self_test(
    monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    registry = interpreters._Registry()
    registry.loaded = SimpleNamespace(
        create=lambda: 1,
        share=lambda *_: None,
        execute=lambda *_: answer,
        destroy=lambda _: None,
    )
    monkeypatch.setattr(interpreters, "_registry", registry)
    with pytest.raises(VmStartError, match="fail at"):
        ensure_supported()
    assert not registry.is_tested


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="only 3.13 needs them")
def test_the_host_has_what_313_needs_before_the_first_vm(interpreter: Interpreter) -> None:
    assert interpreter
    assert all(name in sys.modules for name in HOST_IMPORTS)


def test_many_that_imported_datetime_are_destroyed_cleanly() -> None:
    made = [Interpreter() for _ in range(4)]
    for one in made:
        assert one.execute(code("import datetime, decimal, hashlib, statistics, zlib")) is None
    for one in made:
        one.destroy()
