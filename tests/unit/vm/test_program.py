from collections.abc import Mapping
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.program import TaskProgram, compile_program

RUN = "\ndef run(ctx, page):\n    pass\n"


def load(source: str, config: Mapping[str, Any] | None = None) -> None:
    compile_program(TaskProgram("ipv", "v3", source, "tasks/ipv.py", config or {}))


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("x = 1\ndef run(ctx, page)\n    pass", 2, "not valid Python"),
        ("x = 'a\0b'" + RUN, 0, "not valid Python"),
        ("x = 1\nreturn 5" + RUN, 2, "outside function"),
        ("def go(ctx, page): pass", 0, "define def run"),
        ("", 0, "define def run"),
        ("if True:\n    def run(ctx, page): pass", 0, "define def run"),
        ("\ndef run(ctx): pass", 2, "does not take"),
        ("def run(ctx, page, more): pass", 1, "does not take"),
        ("def run(ctx, page, *, more): pass", 1, "does not take"),
        ("async def run(ctx, page): pass", 1, "neither awaited"),
        ("def run(ctx, page):\n    yield 1", 1, "without async and yield"),
        ("def on_message(ctx): pass" + RUN, 1, "def on_message(ctx, message)"),
        ("import math\nimport os" + RUN, 2, "imports 'os'"),
        ("import os.path as p" + RUN, 1, "imports 'os.path'"),
        (RUN + "    import time", 4, "ctx.clock.now_ms"),
        ("from random import random" + RUN, 1, "ctx.random"),
        ("from . import x" + RUN, 1, "one file"),
        ("from math import *" + RUN, 1, "import the names that it needs"),
        ("from json import decoder" + RUN, 1, "'decoder' from 'json'"),
        ("from operator import attrgetter" + RUN, 1, "attrgetter"),
        ("import json.decoder" + RUN, 1, "json.decoder"),
        ("x = open('a')" + RUN, 1, "reads no files"),
        ("x = [eval]" + RUN, 1, "'eval'"),
        ("x = hash('a')" + RUN, 1, "use hashlib"),
        ("x = __import__('os')" + RUN, 1, "__import__"),
        ("x = ().__class__" + RUN, 1, "__class__"),
        ("x = (y for y in ()).gi_frame" + RUN, 1, "gi_frame"),
        ("class A:\n    def __del__(self): pass" + RUN, 2, "__del__"),
        ("class A:\n    __reduce_ex__ = 1" + RUN, 2, "__reduce_ex__"),
        ("match 1:\n    case object(__class__=c): pass" + RUN, 2, "__class__"),
        ("from datetime import datetime\nx = datetime.now()" + RUN, 2, "event time"),
        ("def f(x):\n    x.today = 1" + RUN, 2, "event time"),
        ("def f(x):\n    match x:\n        case f(utcnow=y): pass" + RUN, 3, "event time"),
        ("class A(int):\n    now: int" + RUN, 1, "give it another name"),
        ("__import__ = 1" + RUN, 1, "__import__"),
        ("x = " + "(" * 300 + ")" * 300 + RUN, 1, "not valid Python"),
    ],
)
def test_a_script_that_cannot_run_is_refused_at_its_place(
    source: str, line: int, words: str
) -> None:
    with pytest.raises(ScriptError) as caught:
        load(source)
    error = caught.value
    assert (error.task, error.file, error.line) == ("ipv", "tasks/ipv.py", line)
    assert error.message.startswith(f"tasks/ipv.py:{line}:" if line else "tasks/ipv.py: ")
    assert words in error.message


@pytest.mark.parametrize("depth", [3_000, 100_000])
def test_a_script_nested_beyond_the_compiler_is_refused(depth: int) -> None:
    with pytest.raises(ScriptError):
        load("x = " + "-" * depth + "1" + RUN)


@pytest.mark.parametrize(
    "source",
    [
        "def run(ctx, page): pass",
        "def run(context, the_page, /): pass",
        "def run(ctx, page, scale=1.0, *, more=2): pass",
        "def run(*args): pass",
        "from __future__ import annotations\nimport collections.abc, json as j" + RUN,
        "from collections import abc, Counter\nfrom datetime import datetime as dt" + RUN,
        "def open(x): return x\nx = open(1)" + RUN,
        "class A:\n    __slots__ = ('x',)\n    def __init__(self): self.x = 1" + RUN,
        "def run(ctx, page):\n    def inner():\n        yield 1\n    return list(inner())",
        "x = '\\d'  # a warning in the script is not our error" + RUN,
    ],
)
def test_an_ordinary_script_is_accepted(source: str) -> None:
    load(source)


@pytest.mark.parametrize("name", ["now", "today", "utcnow", "register", "f_code"])
@pytest.mark.parametrize(
    "source",
    [
        "NAME = 1",
        "def NAME(): return NAME",
        "def f(NAME=1, *, b=2): return f(NAME=NAME)",
        "import math as NAME",
        "from math import pi as NAME",
        "def f():\n    global NAME\n    NAME += 1",
        "for NAME in (): print([NAME for NAME in ()], lambda NAME: NAME)",
        "try: pass\nexcept OSError as NAME: pass",
        "match 1:\n    case [*NAME]: pass\n    case {**NAME}: pass\n    case NAME: pass",
        "class NAME:\n    NAME: int = 1\n    def NAME(self): pass",
    ],
)
def test_a_script_calls_its_own_what_it_likes(source: str, name: str) -> None:
    load(source.replace("NAME", name) + RUN)


def test_the_first_problem_by_line_is_named() -> None:
    with pytest.raises(ScriptError, match=r"ipv\.py:1: .*'os'"):
        load("import os\nx = eval\nimport sys" + RUN)


def test_a_config_that_is_not_plain_is_refused() -> None:
    with pytest.raises(ScriptError, match="config"):
        load(RUN, {"x": object()})


SUPER = "class A:\n    def f(self, xs):\n        g = lambda: self\n        return {}\n"


@pytest.mark.parametrize("made", ["[super().f for self in xs]", "{0: [g for _, self in xs]}"])
def test_a_comprehension_that_takes_super_its_cell_is_refused(made: str) -> None:
    with pytest.raises(ScriptError, match=r"ipv\.py:4: .*'self'.*super\(\) would crash"):
        load(SUPER.format(made) + "super" + RUN)


@pytest.mark.parametrize("made", ["[super().f for x in xs]", "(super(A, self).f for self in xs)"])
def test_other_uses_of_super_are_accepted(made: str) -> None:
    load(SUPER.format(made) + RUN)
    load("def f(x): return [x for x in x], super" + RUN)


@pytest.mark.parametrize(
    ("source", "is_woken"),
    [
        ("", False),
        ("def on_message(ctx, message): pass", True),
        ("def on_message(*given): pass", True),
        ("def on_message_too(ctx, message): pass", False),
        ("class A:\n    def on_message(ctx, message): pass", False),
    ],
)
def test_the_host_knows_whether_messages_wake_a_script(source: str, *, is_woken: bool) -> None:
    program = compile_program(TaskProgram("ipv", "v3", source + RUN, "tasks/ipv.py"))
    assert program.takes_messages == is_woken
