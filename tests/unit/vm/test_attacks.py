"""Ways around the guards that once worked."""

from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.program import TaskProgram, compile_program

pytestmark = pytest.mark.vm


@pytest.mark.parametrize(
    ("head", "line", "words"),
    [
        ("", "type(int)('X', (), {'__del__': len})", "positional"),
        ("from enum import Enum", "Enum('X', {'__red' + 'uce_ex__': len, 'A': 1})", "may not use"),
        ("", "type[int]('X', (), {'__del__': len})", "positional"),
        ("import abc", "type(abc.ABC)('X', (), {'__del__': len})", "positional"),
        (
            "class B(type): __match_args__ = ('__subcla' + 'sses__',)",
            "match int:\n        case B(found): raise ValueError('has it')\n    raise KeyError('safe')",
            "safe",
        ),
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
