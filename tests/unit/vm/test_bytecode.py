"""The check of bytecode: accepts what our compiler makes, refuses what nothing compiles to."""

import marshal
from pathlib import Path
from types import CodeType

import pytest

from walle_stream.vm.bytecode.check import check_code
from walle_stream.vm.guest.restricted import STORE_GUARD
from walle_stream.vm.program import TaskProgram, compile_program

pytestmark = pytest.mark.vm

ROOT = Path(__file__).resolve().parents[3]
RUN = "\ndef run(ctx, page): pass\n"


def compiled(source: str) -> CodeType:
    packed = compile_program(TaskProgram("t", "v", source, "t.py")).packed
    return marshal.loads(packed)[2]  # noqa: S302 - our own


def raw(source: str) -> CodeType:
    return compile(source, "t.py", "exec", dont_inherit=True)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.py")), ids=lambda p: p.name)
def test_the_scripts_that_ship_are_accepted(path: Path) -> None:
    assert check_code(compiled(path.read_text())) == []


@pytest.mark.parametrize(
    "body",
    [
        "import json\nclass A:\n    x: int = 1\n    def __init__(self): self.x += 1\n    def f(self): return super().__init__()",
        "def g(n):\n    try: n()\n    except* ValueError as e: n = e\n    finally: n = 0\n    yield n",
        "def g(x):\n    y = yield from x\n    return (yield from (yield y)), [z for z in (yield)]",
        "def f(x):\n    match x:\n        case {'a': v, **r}: return v, r\n        case [int(), *q]: return q",
        "def f(*a, k=1, **kw): return [lambda: (n, k) for n in a], f'{k!r:>3}', any(x for x in a)",
        "def f(x):\n    with x as y:\n        del y\n    return '{}'.format(x)",
        "def f[T](x: T) -> T: return x\ntype P[T] = list[T]",
    ],
)
def test_what_our_compiler_makes_is_accepted(body: str) -> None:
    assert check_code(compiled(body + RUN)) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os", "imports 'os'"),
        ("open('a')", "uses 'open'"),
        ("().__class__", "__class__"),
        ("(i for i in ()).gi_frame", "gi_frame"),
        ("from json import decoder", "decoder"),
        ("from json import *", "intrinsic"),
        ("import json\njson.x = 1", "STORE_ATTR"),
        ("import json\ndel json.loads", "DELETE_ATTR"),
        ("'{0.x}'.format(1)", "without its guard"),
        ("match 1:\n    case object(__class__=c): pass", "matches the attribute"),
    ],
)
def test_what_the_gate_refuses_is_refused_as_bytecode(source: str, words: str) -> None:
    assert words in " ".join(check_code(raw(source)))


def test_the_guard_cannot_be_bound() -> None:
    code = raw("guard = len\nx = guard(len)")
    names = tuple(STORE_GUARD if name == "guard" else name for name in code.co_names)
    assert "binds the guard" in " ".join(check_code(code.replace(co_names=names)))


def test_code_of_other_shapes_is_refused() -> None:
    code = raw("x = [1, 2]\nfor y in x: z = y")
    assert check_code(code) == []
    for changed in (
        code.replace(co_stacksize=0),
        code.replace(co_code=b""),
        code.replace(co_code=code.co_code[:-2]),
        code.replace(co_code=b"\x00\x00" + code.co_code),
        code.replace(co_exceptiontable=b"\xff\xff\xff"),
        code.replace(co_linetable=b""),
        code.replace(co_consts=()),
        code.replace(co_consts=(*code.co_consts, object())),
        code.replace(co_names=()),
        code.replace(co_flags=code.co_flags | 0x2000000),
    ):
        assert len(check_code(changed)) == 1
