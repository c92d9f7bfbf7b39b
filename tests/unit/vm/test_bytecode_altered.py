"""Small changes to compiled code that crashed the interpreter, or would: each is refused."""

import dis
import sys
from types import CodeType

import pytest

from tests.property.bytecode_fuzz.assembly import (
    Ins,
    assemble,
    disassemble,
    inner_codes,
    with_inner,
)
from walle_stream.vm.bytecode.check import check_code

pytestmark = pytest.mark.vm

PLAIN = "def f(a):\n    return a, f'{a!r}', g(x=a, y=a), [b for b in a], 1 if a else 2"
CELLS = "def f(self, x=1):\n    return lambda: (self, x)"
KEYWORD = "def f(a, *, k): return (b for b in k)"
FAILS = "def f(a):\n    try: a()\n    except ValueError: pass\n    return a"


def altered(source, edit, **changes):
    """A script whose first function, or the first code in it, had its instructions edited."""
    code = compile(source, "t.py", "exec", dont_inherit=True)
    assert check_code(code) == []
    path, inner = list(inner_codes(code))[1]
    found, handlers = disassemble(inner)
    edit(found, handlers)
    return with_inner(code, path, inner.replace(**assemble(inner, found, handlers), **changes))


def at(found, name):
    return next(place for place, ins in enumerate(found) if ins.name == name)


def after_start(*more):
    def edit(found, _):
        place = at(found, "RESUME") + 1
        found[place:place] = [Ins(name, arg) for name, arg in more]

    return edit


def changed(instruction, **attributes):
    def edit(found, _):
        ins = found[at(found, instruction)]
        for attribute, value in attributes.items():
            setattr(ins, attribute, value)

    return edit


def without(name):
    def edit(found, _):
        del found[at(found, name)]

    return edit


def formatted_cell(found, _):
    found.insert(at(found, "BUILD_TUPLE"), Ins("FORMAT_SIMPLE", 0))


def handled_by_what_failed(found, handlers):
    call = found[at(found, "CALL")]
    start = found[at(found, "RESUME") + 1]
    for each in handlers:
        if each[0] is not None and found.index(each[0]) <= found.index(call):
            each[2:4] = [start, 0]
    found.insert(found.index(start), new := Ins("POP_TOP", 0))
    found.insert(found.index(new), Ins("LOAD_CONST", 0))
    for each in handlers:
        each[2] = new if each[2] is start else each[2]


@pytest.mark.parametrize(
    ("source", "edit", "words"),
    [
        (PLAIN, after_start(("BUILD_SLICE", 0), ("POP_TOP", 0)), "slice of too few"),
        (PLAIN, changed("END_FOR", arg=256), "longer than it needs"),
        (PLAIN, changed("CONVERT_VALUE", arg=0), "unknown conversion"),
        (PLAIN, without("TO_BOOL"), "finds"),
        (CELLS, without("MAKE_CELL"), "making its cells"),
        (CELLS, after_start(("BUILD_LIST", 0), ("STORE_FAST", 0)), "cell"),
        (CELLS, formatted_cell, "'f': "),
        (FAILS, changed("POP_EXCEPT", name="POP_TOP"), "exception"),
        (FAILS, handled_by_what_failed, "cannot be stopped"),
    ],
)  # fmt: skip
def test_altered_instructions_are_refused(source, edit, words):
    assert words in " ".join(check_code(altered(source, edit)))


def nothing(*_):
    pass


@pytest.mark.parametrize(
    ("source", "changes", "words"),
    [
        (KEYWORD, {"co_varnames": ("a", ".0"), "co_cellvars": ()}, "name of the compiler's"),
        (PLAIN, {"co_consts": "twice"}, "other names"),
    ],
)
def test_altered_names_are_refused(source, changes, words):
    if changes.get("co_consts"):
        inner = list(inner_codes(compile(source, "t.py", "exec", dont_inherit=True)))[1][1]
        consts = [("x", "x") if each == ("x", "y") else each for each in inner.co_consts]
        changes = {"co_consts": tuple(consts)}
    code = altered(source, nothing, **changes)
    assert isinstance(code, CodeType)
    assert words in " ".join(check_code(code))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="3.13 writes there as it makes the code")
def test_caches_behind_the_end_are_refused_before_anything_reads_them():
    # co_code clears caches as it copies: of such code it writes behind its own end
    code = compile("x = 1", "t.py", "exec", dont_inherit=True)
    for count in range(1, 40):
        raw = bytes([dis.opmap["NOP"], 0] * count + [dis.opmap["LOAD_ATTR"], 0])
        bad = code.replace(co_code=raw, co_linetable=bytes([0xF8] * (count + 1)))
        assert "ends inside an instruction" in " ".join(check_code(bad))
