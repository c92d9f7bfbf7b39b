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
from walle_stream.vm.guest.delegation import YIELD_GUARD

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


YIELDS = "def f(a):\n    yield 1\n    try: a()\n    except OSError: pass"
DELEGATES = YIELDS.replace("yield 1", "yield from guard(a)")


def guarded(source):
    code = compile(source, "t.py", "exec", dont_inherit=True)
    (inner,) = (each for each in code.co_consts if isinstance(each, CodeType))
    names = tuple(YIELD_GUARD if name == "guard" else name for name in inner.co_names)
    return with_inner(code, (code.co_consts.index(inner),), inner.replace(co_names=names))


def edited(code, edit):
    path, inner = list(inner_codes(code))[1]
    found, handlers = disassemble(inner)
    edit(found, handlers)
    return with_inner(code, path, inner.replace(**assemble(inner, found, handlers)))


def covering(name, behind=0):
    """Give an instruction the handler of a ``try``."""

    def edit(found, handlers):
        place = at(found, name) + behind
        covered, after = found[place], found[place + 1]
        target = next(each[2] for each in handlers if each[2].name == "PUSH_EXC_INFO")
        for each in [*handlers]:
            ends = len(found) if each[1] is None else found.index(each[1])
            if found.index(each[0]) <= place < ends:
                handlers.remove(each)
                parts = ((each[0], covered), (after, each[1]))
                handlers += [[*part, *each[2:]] for part in parts if part[0] is not part[1]]
        handlers.append([covered, after, target, 0, False])

    return edit


def cleanup_is_covered(found, handlers):
    # what ends every generator is handled once more
    stop = next(each for each in handlers if each[2].name == "CALL_INTRINSIC_1")[2]
    behind = found.index(stop) + 2
    last = found[behind] if behind < len(found) else None
    handlers.append([stop, last, stop, 0, True])


@pytest.mark.parametrize("source", [YIELDS, DELEGATES])
def test_what_is_suspended_outside_is_accepted(source):
    assert check_code(guarded(source)) == []


@pytest.mark.parametrize(
    ("source", "edit"),
    [
        (YIELDS, covering("YIELD_VALUE")),
        (YIELDS, covering("YIELD_VALUE", behind=1)),
        (YIELDS, cleanup_is_covered),
        (DELEGATES, covering("YIELD_VALUE")),
        (DELEGATES, covering("CLEANUP_THROW")),
        (DELEGATES, cleanup_is_covered),
    ],
)
def test_what_is_suspended_inside_a_handler_is_refused(source, edit):
    code = guarded(source)
    assert "runs when it is closed" in " ".join(check_code(edited(code, edit)))


@pytest.mark.parametrize(
    "body",
    [
        "try: yield\n    finally: a()",
        "try: yield from guard(a)\n    except OSError: a()",
        "with a: yield",
        "try: a()\n    except OSError: yield",
        "try: a()\n    finally: yield",
        "try: a()\n    except* OSError: yield",
    ],
)
def test_yields_inside_try_and_with_are_refused_as_bytecode(body):
    found = " ".join(check_code(guarded(f"def f(a):\n    {body}")))
    assert "runs when it is closed" in found


@pytest.mark.parametrize(
    "source", ["guard", "guard(a, a)", "guard(*a)", "guard(x=a)", "a", "guard(a) or a"]
)
def test_delegating_past_the_guard_is_refused(source):
    found = " ".join(check_code(guarded(f"def f(a):\n    x = guard\n    yield from {source}")))
    assert "'v'" in found


def without_guard(found, _):
    found[at(found, "GET_YIELD_FROM_ITER")].name = "GET_ITER"


def test_a_suspended_generator_waits_for_nothing_else():
    assert "'j'" in " ".join(check_code(edited(guarded(DELEGATES), without_guard)))
    assert "'j'" in " ".join(check_code(edited(guarded(YIELDS), changed("YIELD_VALUE", arg=1))))


@pytest.mark.parametrize(
    "source",
    ["async def f(): pass", "async def f(): yield", "def f(a): return (b async for b in a)"],
)
def test_coroutines_are_refused(source):
    code = compile(source, "t.py", "exec", dont_inherit=True)
    assert "flags" in " ".join(check_code(code))


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
