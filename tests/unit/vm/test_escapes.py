"""Text that becomes code is checked, and nothing inside a VM switches its guards off."""

import json
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.guest.naming import check_tuple_code
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask, read_package
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram, pack_program

pytestmark = pytest.mark.vm

EMIT = "\ndef run(ctx, page): ctx.emit({'found': str(use(page))})\n"
WALK = "__class__.__base__.__subclasses__()"
# each would read what the gate refuses, by a name that is code
ODD_NAMES = {
    "fields of a typed dictionary": f"""
from dataclasses import dataclass
from typing import TypedDict
def use(page):
    odd = dataclass(TypedDict("Odd", {{"{WALK}": int}}), init=False, eq=False)
    return odd.__repr__(page)
""",
    "its defaults": """
from dataclasses import dataclass
from typing import TypedDict
def use(page):
    odd = dataclass(TypedDict("Odd", {"a=().__class__, b": int}))
    return odd
""",
    "a tuple's fields": f"""
from collections import namedtuple
def use(page): return namedtuple("Odd", ["a, b={WALK}"])
""",
    "a typed tuple's fields": f"""
from typing import NamedTuple
def use(page): return NamedTuple("Odd", [("a, b={WALK}", int)])
""",
    "members of an enumeration": f"""
from enum import Enum
def use(page): return Enum("Odd", [("a.{WALK}", 1)])
""",
    "a keyword": """
from typing import TypedDict
def use(page): return TypedDict("Odd", {"class": int})
""",
    "a name with two underscores": """
from typing import TypedDict
def use(page): return TypedDict("Odd", {"__class__": int})
""",
    "a very long name": """
from typing import TypedDict
def use(page): return TypedDict("Odd", {"a" * 201: int})
""",
    "a text of a class of its own": """
from typing import TypedDict
class Own(str):
    def isidentifier(self): return True
def use(page): return TypedDict("Odd", {Own("a b"): int})
""",
}


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_is_none_becomes_no_code(page: Any, name: str, isolation: Any) -> None:
    program = TaskProgram("t", "v", ODD_NAMES[name] + EMIT, "t.py", isolation=isolation)
    with VmPool({"t": program}, 1) as pool:
        (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert group.runs[0].error in {"ValueError", "TypeError", "AttributeError"}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_nor_in_a_package(page: Any, name: str) -> None:
    limits = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
    task = PackagedTask("t", "v", 1, "t.py", (("page_exit",),), None, {}, limits)
    data = build_package(task, ODD_NAMES[name] + EMIT)
    with VmPool({}, 1) as pool:
        pool.install(read_package(data).program())
        (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert group.runs[0].error in {"ValueError", "TypeError", "AttributeError"}


def test_good_names_make_what_they_always_made(run_script: Any) -> None:
    source = """
from collections import namedtuple
from dataclasses import dataclass, asdict
from enum import Enum
from typing import NamedTuple, TypedDict, Optional
class Row(TypedDict, total=False):
    a: int
    b: "Row"
Other = TypedDict("Other", {"a": int, "b": "Other"})
Old = namedtuple("Old", "a b", defaults=[2])
New = NamedTuple("New", [("a", int), ("b", Optional["New"])])
class Class(NamedTuple):
    a: int
    b: "str" = "x"
Color = Enum("Color", "RED GREEN")
@dataclass
class Point:
    a: int
    b: "Point" = None
def run(ctx, page):
    Old.mark, Other.mark = 1, 2
    ctx.emit({"made": [Row(a=1), Other(a=2), Old(1), New(1, None), Class(1), asdict(Point(1)),
                       Color.GREEN.value, Old.mark, Other.mark, Old(a=3)._replace(b=4)]})
"""
    (run,) = run_script(source).runs
    assert run.message == ""
    assert json.loads(run.emits[0][0])["made"] == [
        *({"a": 1}, {"a": 2}, [1, 2], [1, None], [1, "x"], {"a": 1, "b": None}, 2, 1, 2, [3, 4]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "lambda _cls, a: print(a)",
        "lambda _cls, a=print(): _tuple_new(_cls, (a=print()))",
        "lambda _cls, a,: _tuple_new(_cls, (b,))",
        "print(1)",
    ],
)
def test_only_the_code_of_a_tuple_becomes_code(text: str) -> None:
    with pytest.raises(ValueError, match="identifiers"):
        check_tuple_code(text)


BEHIND = """
def run(ctx, page):
    real = ctx.emit.__func__.__globals__["__builtins__"]
    real = real if isinstance(real, real["dict"]) else real["vars"](real)
    load, error, isinstance_, type_ = real["__import__"], real["PermissionError"], real["isinstance"], real["type"]
    sys = load("sys")
    auditing = sys.modules["walle_guest.auditing"]
    def hook_frame():
        try: real["open"]("/etc/passwd")
        except error as refusal:
            trace = refusal.__traceback__
            while trace.tb_next: trace = trace.tb_next
            return trace.tb_frame
    {attack}
    found = real["open"]("/etc/passwd").read()
    ctx.emit({{"found": found[:20]}})
"""
SWITCHES = {
    "the number of the run": 'sys._getframe(1).f_locals["self"]._pulse[0] = 0',
    "the host's page": 'sys.modules["__main__"]._session._pulse[0] = 0',
    "what is refused": "auditing._REFUSED = frozenset()",
    "the window for text": "auditing.TEXT_WINDOW[0] = 1",
    "the function that looks": "auditing._look.__code__ = (lambda *_: None).__code__",
    "its defaults": "auditing._look.__defaults__ = (frozenset(),) * 8",
    "what it would raise": 'real["PermissionError"] = auditing.PermissionError = list',
    "a builtin that it might use": 'auditing.type = auditing.frozenset = real["type"] = list',
    "where the library lies": "sys.path[:] = ['/']",
    "names of its frame": """
    for name in hook_frame().f_locals: hook_frame().f_locals[name] = frozenset()""",
    "what its frame's names hold": """
    hook_frame().f_locals["window"][0] = 1""",
    "globals of its frame": """
    hook_frame().f_globals.update(frozenset=list, event="x")
    hook_frame().f_builtins.clear()""",
    "the garbage collector": """
    for each in load("gc").get_objects():
        if getattr(each, "__name__", "") == "hook": each.__defaults__ = ()""",
    "what refers to its code": 'load("gc").get_referrers(hook_frame().f_code)',
    "a hook of its own": "sys.addaudithook(lambda *_: None)",
    "an interpreter of its own": 'load("_interpreters").create()',
    "the module that makes them": """
    sys.modules.pop("_interpreters", None)
    load("_interpreters").create()""",
    "the host's interpreter": 'load("_interpreters").exec(0, "import os; os._exit(3)")',
    "a way out of the library": """
    for path in sys.path: real["open"](path + "/../../../../../../../../etc/passwd").read()""",
    "a neighbour of the library": """
    real["open"](real["min"](sys.path, key=real["len"]) + "-other/passwd.py").read()""",
    "a new session": """
    sys.modules["walle_guest.session"].Session._begin_audit = lambda _: None
    sys.modules["__main__"]._session.bind(b"")""",
}


@pytest.mark.parametrize("attack", SWITCHES.values(), ids=SWITCHES.keys())
def test_nothing_inside_switches_the_audit_hook_off(page: Any, attack: str) -> None:
    code = compile(BEHIND.format(attack=attack), "t.py", "exec")
    program = pack_program(TaskProgram("t", "v", "", "t.py"), code, (), shares_globals=False)
    with VmPool({}, 1) as pool:
        pool.install(program)
        for _ in range(2):
            (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
            (run,) = group.runs
            assert run.emits == []
            assert run.error in {
                *("PermissionError", "InterpreterError", "AttributeError", "EOFError"),
                *("TypeError", "RuntimeError", "BaseException"),
            }, run.message


def test_text_becomes_no_code_in_a_run(page: Any) -> None:
    refused = dict.fromkeys(
        ('real["eval"]("1")', 'real["exec"]("1")', 'real["compile"]("1", "", "eval")'), "compile"
    )
    refused["type_(run)(run.__code__, {})"] = "function.__new__"
    for text, event in refused.items():
        source = BEHIND.format(attack=text)
        program = pack_program(
            TaskProgram("t", "v", "", "t.py"),
            compile(source, "t.py", "exec"),
            (),
            shares_globals=False,
        )
        with VmPool({}, 1) as pool:
            pool.install(program)
            (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
        assert f"PermissionError: a task's script may not: {event}" in group.runs[0].message


def test_a_script_that_is_refused_when_loaded_names_its_line(run_script: Any) -> None:
    source = (
        "from typing import TypedDict\nT = TypedDict('T', {'a b': int})\ndef run(ctx, page): pass\n"
    )
    with pytest.raises(ScriptError) as caught:
        run_script(source)
    assert caught.value.line == 2
