"""Ways around the guards that once worked."""

from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram, compile_program, pack_program

pytestmark = pytest.mark.vm


@pytest.mark.parametrize(
    ("head", "line", "words"),
    [
        ("", "type(int)('X', (), {'__del__': len})", "positional"),
        ("from enum import Enum", "Enum('X', {'__red' + 'uce_ex__': len, 'A': 1})", "may not use"),
        ("", "type[int]('X', (), {'__del__': len})", "positional"),
        ("import abc", "type(abc.ABC)('X', (), {'__del__': len})", "positional"),
        (
            "class S(str):\n    def go(self, x): return super().format(x)",
            "S('{0.gi_frame}').go((i for i in ()))",
            "may not use",
        ),
        (
            "class S(str): pass",
            "super(S, S).format('{0.gi_frame}', (i for i in ()))",
            "may not use",
        ),
        ("", "type(list[int])('{0.gi_frame}', (int,)).format((i for i in ()))", "positional"),
        (
            "from typing import TypedDict\nfrom dataclasses import dataclass",
            "dataclass(init=False)(TypedDict('T', {'_\uff3fglobals_\uff3f': int}))",
            "is not a valid field name",
        ),
    ],
)
def test_a_way_around_a_guard_is_closed(run_script: Any, head: str, line: str, words: str) -> None:
    (run,) = run_script(f"{head}\ndef run(ctx, page):\n    {line}\n").runs
    assert not run.ok
    assert words in run.message


def test_a_pattern_does_not_read_format_without_its_guard() -> None:
    source = "def run(ctx, page):\n    match '{0.x}':\n        case str(format=f): f(page)\n"
    with pytest.raises(ScriptError, match="matches the attribute 'format'"):
        compile_program(TaskProgram("t", "v", source, "t.py"))


@pytest.mark.parametrize(
    "body",
    [
        "class S(str): __match_args__ = ('for' + 'mat',)",
        "class B(type): __match_args__ = ('__subcla' + 'sses__',)",
        "class S(str): __match_args__ = ('format',)",
        "class S(str): __match_args__ = ('__getattribute__',)",
        "class S(str):\n        for __match_args__ in [('format',)]: pass",
        "class S(str):\n        def __match_args__(self): pass",
        "class S(str): pass\n    S.__match_args__ = ('a',)",
        "class S(str):\n        format: str",
    ],
)
def test_what_a_pattern_reads_by_place_is_known_before(body: str) -> None:
    source = f"def run(ctx, page):\n    {body}\n"
    with pytest.raises(ScriptError, match=r"__match_args__|the field 'format'|getattribute"):
        compile_program(TaskProgram("t", "v", source, "t.py"))


def test_a_pattern_by_place_works(run_script: Any) -> None:
    source = """
from dataclasses import dataclass
class P:
    __match_args__ = ("x", "y")
    def __init__(self, x, y): self.x, self.y = x, y
@dataclass
class Q:
    a: int
    format: str
def run(ctx, page):
    match P(1, 2), Q(3, "f"):
        case P(x, y), Q(a, f): ctx.emit({"x": [x, y, a, f]})
    setattr(P, "__match_args__", ("format",))
"""
    (run,) = run_script(source).runs
    assert "may not set '__match_args__'" in run.message


def test_a_module_s_parent_is_whole(run_script: Any) -> None:
    source = "import collections.abc\ndef run(ctx, page): ctx.emit(collections.OrderedDict(a=1))"
    assert run_script(source).runs[0].ok


BEHIND = """
def run(ctx, page):
    real = ctx.emit.__func__.__globals__["__builtins__"]
    load = real["__import__"] if isinstance(real, dict) else real.__import__
    {attack}
"""


@pytest.mark.parametrize(
    ("attack", "event"),
    [
        ("load('builtins').open('/etc/passwd')", "open"),
        ("load('posix').listdir('/')", "os.listdir"),
        ("load('posix').system('true')", "os.system"),
        ("load('posix').open('/etc/passwd', 0)", "open"),
        ("load('gc').get_objects()", "gc.get_objects"),
        ("load('sys').settrace(None)", "sys.settrace"),
        ("load('_thread').start_new_thread(print, ())", "_thread.start_new_thread"),
        ("run.__code__.replace(co_name='x')", "code.__new__"),
        ("load('socket').socket()", "socket.__new__"),
        ("load('subprocess').run('true')", "subprocess.Popen"),
        ("load('builtins').open(load('json').__file__, 'a')", "open"),
    ],
)
def test_what_gets_past_the_gate_meets_the_audit_hook(page: Any, attack: str, event: str) -> None:
    code = compile(BEHIND.format(attack=attack), "t.py", "exec")
    program = pack_program(TaskProgram("t", "v", "", "t.py"), code, (), shares_globals=False)
    with VmPool({}, 1) as pool:
        pool.install(program)
        for _ in range(2):
            (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
            assert "PermissionError: a task's script may not: " in group.runs[0].message
            assert event in group.runs[0].message
