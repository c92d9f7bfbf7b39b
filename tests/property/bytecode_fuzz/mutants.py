"""Mutants of compiled scripts: most of them nearly right."""

import dis
import random

from assembly import CACHES, Ins, assemble, disassemble, inner_codes, is_whole, with_inner

# other numbers crash the interpreter when such a code object is made, before any check
OPS = [
    name
    for name, number in dis.opmap.items()
    if number < 200
    and not name.startswith("INSTRUMENTED")
    and name not in {"CACHE", "ENTER_EXECUTOR", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT"}
]
LIKELY = [
    *("COPY", "SWAP", "POP_TOP", "PUSH_NULL", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "NOP"),
    *("LOAD_FAST_AND_CLEAR", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "DELETE_FAST", "MAKE_CELL"),
    *("BUILD_LIST", "BUILD_TUPLE", "BUILD_MAP", "BUILD_SET", "BUILD_STRING", "LIST_APPEND"),
    *("CALL", "CALL_KW", "CALL_FUNCTION_EX", "GET_ITER", "GET_YIELD_FROM_ITER", "UNPACK_EX"),
    *("CALL_INTRINSIC_1", "CALL_INTRINSIC_2", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"),
    *("FORMAT_SIMPLE", "END_SEND", "CHECK_EXC_MATCH", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE"),
    *("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "LOAD_SMALL_INT", "UNPACK_SEQUENCE", "IS_OP"),
    *("LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_GLOBAL", "LOAD_LOCALS", "TO_BOOL"),
    *("LOAD_SPECIAL", "WITH_EXCEPT_START", "END_FOR", "POP_ITER", "NOT_TAKEN", "SEND"),
    *("DICT_MERGE", "DICT_UPDATE", "SET_UPDATE", "LIST_EXTEND", "MAP_ADD", "MATCH_KEYS"),
    *("MATCH_CLASS", "GET_LEN", "MATCH_SEQUENCE", "LOAD_SUPER_ATTR", "BUILD_SLICE", "RESUME"),
    *("STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "LOAD_FAST_LOAD_FAST", "YIELD_VALUE"),
    *("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_BUILD_CLASS"),
    *("BUILD_TEMPLATE", "BUILD_INTERPOLATION", "LOAD_FROM_DICT_OR_DEREF", "CLEANUP_THROW"),
]
LIKELY = [name for name in LIKELY if name in dis.opmap]
ODD_CONSTS = [
    *(None, 0, -1, 2**70, 1.5, "", "x", "run", (), ("x",), ("x", "y"), (1, 2), (None,), b"x"),
    *(frozenset(), frozenset({1, "x"}), ..., True, slice(1, 2), ((),), ("__class__",)),
]


def mutated(rng: random.Random, code):
    """Return a mutant, or None where the interpreter refuses to make it."""
    codes = list(inner_codes(code))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        path, victim = rng.choice(codes[1:] if rng.random() < 0.9 else codes)
        try:
            new = victim.replace(**rng.choice(KINDS)(rng, victim))
            code = with_inner(code, path, new)
        except (ValueError, TypeError, OverflowError, LookupError, AttributeError, SystemError):
            return None
        codes = list(inner_codes(code))
    return code if all(is_whole(each.co_code) for _, each in codes) else None


def instructions(rng, code):
    """Change a few instructions; jumps and handlers go on to point where they did."""
    found, handlers = disassemble(code)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(EDITS)(rng, code, found, handlers)
    return _checked(assemble(code, found, handlers))


def raw_bytes(rng, code):
    data = bytearray(code.co_code)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(data))
        data[at] = dis.opmap[rng.choice(OPS)] if at % 2 == 0 else rng.randrange(20)
    return _checked({"co_code": bytes(data)})


def handlers_only(rng, code):
    found, handlers = disassemble(code)
    places = [*found, None]
    if handlers and rng.random() < 0.7:
        each = rng.choice(handlers)
        what = rng.randrange(6)
        if what < 3:
            each[what] = rng.choice(places)
        elif what == 3:
            each[3] += rng.choice((-1, 1, 2))
        elif what == 4:
            each[4] = not each[4]
        else:
            handlers.remove(each)
    else:
        first = rng.randrange(len(found))
        last = rng.choice([*found[first + 1 :], None])
        targets = [h[2] for h in handlers] or found
        handlers.append(
            [found[first], last, rng.choice(targets), rng.randrange(4), rng.random() < 0.5]
        )
    return _checked(assemble(code, found, handlers))


def outside(rng, code):  # noqa: C901, PLR0911 - a table of cases
    """Change what stands around the instructions."""
    match rng.randrange(11):
        case 0:
            return {"co_stacksize": max(0, code.co_stacksize + rng.choice((-2, -1, 1, 5, 900)))}
        case 1:
            consts = list(code.co_consts)
            consts[rng.randrange(len(consts))] = rng.choice([*ODD_CONSTS, *consts])
            return {"co_consts": tuple(consts)}
        case 2:
            return {"co_names": tuple(rng.sample(code.co_names, len(code.co_names)))}
        case 3:
            return {"co_varnames": tuple(rng.sample(code.co_varnames, len(code.co_varnames)))}
        case 4:
            return {"co_flags": code.co_flags ^ (1 << rng.choice((0, 1, 2, 3, 4, 5, 7, 9, 26, 27)))}
        case 5:
            name = rng.choice(("co_argcount", "co_kwonlyargcount", "co_posonlyargcount"))
            return {name: max(0, getattr(code, name) + rng.choice((-1, 1)))}
        case 6:
            more = (*code.co_varnames, rng.choice((*code.co_names, *code.co_cellvars, "x0")))
            return {"co_varnames": more, "co_nlocals": len(more)}
        case 7:
            name = rng.choice(("co_cellvars", "co_freevars"))
            old = getattr(code, name)
            return {
                name: rng.choice(
                    (old[:-1], old[::-1], (*old, rng.choice((*code.co_varnames, "x0"))))
                )
            }
        case 8:
            return {"co_linetable": bytes(rng.randrange(256) for _ in code.co_linetable)}
        case 9:
            first = rng.choice((1, 1, 7, 2**31 - 1))
            return {"co_linetable": _lines(rng, len(code.co_code) // 2), "co_firstlineno": first}
        case _:
            table = bytearray(code.co_exceptiontable)
            if table:
                table[rng.randrange(len(table))] = rng.randrange(256)
            return {"co_exceptiontable": bytes(table)}


def _lines(rng, unit_count):
    # well-formed, about any line and column
    out = bytearray()
    while unit_count:
        count = min(unit_count, rng.randint(1, 8))
        kind = rng.choice((*range(10), 10, 11, 12, 13, 13, 14, 15))
        sizes = {13: 1, 14: 4, 15: 0}
        out.append(0x80 | kind << 3 | count - 1)
        if kind in sizes:
            for _ in range(sizes[kind]):
                out += bytes(rng.randrange(64) | 64 for _ in range(rng.randrange(5)))
                out.append(rng.randrange(64))
        else:
            out += bytes(rng.randrange(128) for _ in range(2 if kind >= 10 else 1))
        unit_count -= count
    return bytes(out)


def _checked(changes):
    if not is_whole(changes["co_code"]):
        raise ValueError("making it would write behind its end")
    return changes


def _argument(rng, code, name):
    number = dis.opmap[name]
    if number in dis.hasconst:
        return rng.randrange(max(1, len(code.co_consts)))
    if number in dis.hasname:
        shift = {"LOAD_ATTR": 1, "LOAD_GLOBAL": 1, "LOAD_SUPER_ATTR": 2}.get(name, 0)
        at = rng.randrange(max(1, len(code.co_names)))
        return at << shift | rng.randrange(1 << shift)
    slots = len({*code.co_varnames, *code.co_cellvars, *code.co_freevars})
    if number in dis.haslocal or number in dis.hasfree:
        one, other = rng.randrange(max(1, slots)), rng.randrange(max(1, slots))
        return (one & 15) << 4 | other & 15 if name.count("FAST") > 1 else one
    return rng.choice((0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 11, 16, 40, 255, 256))


def _made(rng, code, found):
    name = rng.choice(LIKELY if rng.random() < 0.8 else OPS)
    if "JUMP" in name or name in {"FOR_ITER", "SEND", "END_ASYNC_FOR"}:
        return Ins(name, 0, rng.choice(found))
    return Ins(name, _argument(rng, code, name))


def _insert(rng, code, found, _):
    found.insert(rng.randrange(len(found) + 1), _made(rng, code, found))


def _insert_balanced(rng, code, found, _):
    at = rng.randrange(len(found) + 1)
    push = rng.choice(
        ("LOAD_CONST", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_CHECK",
         "COPY", "PUSH_NULL", "BUILD_LIST", "BUILD_MAP", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL")
    )  # fmt: skip
    middle = rng.choice(
        ("NOP", "NOP", "SWAP", "GET_ITER", "TO_BOOL", "FORMAT_SIMPLE", "GET_YIELD_FROM_ITER",
         "UNARY_NOT", "GET_LEN", "CALL_INTRINSIC_1", "CONVERT_VALUE", "LIST_EXTEND", "MAKE_CELL")
    )  # fmt: skip
    pull = rng.choice(
        ("POP_TOP", "POP_TOP", "STORE_FAST", "STORE_NAME", "STORE_DEREF", "POP_JUMP_IF_NONE",
         "POP_JUMP_IF_TRUE", "LIST_APPEND", "SET_ADD", "POP_ITER", "RETURN_VALUE", "YIELD_VALUE")
    )  # fmt: skip
    for name in (pull, middle, push):
        if name in dis.opmap:
            target = rng.choice(found) if "JUMP" in name else None
            arg = 0 if name.startswith("BUILD") else _argument(rng, code, name)
            found.insert(at, Ins(name, arg, target))


def _delete(rng, _, found, handlers):
    if len(found) > 2:
        at = rng.randrange(len(found))
        gone = found.pop(at)
        after = found[at] if at < len(found) else None
        for ins in found:
            if ins.target is gone:
                ins.target = after
        for each in handlers:
            each[:3] = [after if ins is gone else ins for ins in each[:3]]


def _delete_some(rng, code, found, handlers):
    _delete(rng, code, found, handlers)
    _delete(rng, code, found, handlers)


def _double(rng, _, found, __):
    at = rng.randrange(len(found))
    found.insert(at, found[at].copy())


def _swap(rng, _, found, __):
    one = rng.randrange(len(found))
    other = min(len(found) - 1, one + rng.choice((1, 1, 2, 3)))
    found[one], found[other] = found[other], found[one]


def _copy_block(rng, _, found, __):
    first = rng.randrange(len(found))
    block = [ins.copy() for ins in found[first : first + rng.randint(2, 6)]]
    at = rng.randrange(len(found) + 1)
    found[at:at] = block


def _argument_of_one(rng, code, found, _):
    ins = rng.choice(found)
    if ins.target is not None:
        ins.target = rng.choice(found)
    elif rng.random() < 0.6:
        ins.arg = _argument(rng, code, ins.name)
    else:
        ins.arg = max(0, ins.arg + rng.choice((-1, 1, 2, 16)))


def _effect(name, arg):
    try:
        return dis.stack_effect(dis.opmap[name], arg if dis.opmap[name] in dis.hasarg else None)
    except ValueError:
        return None


def _alike(rng, code, found, _):
    # another instruction with the same effect on the depth of the stack: often accepted
    ins = rng.choice(found)
    wanted = _effect(ins.name, ins.arg)
    for _ in range(20):
        name = rng.choice(LIKELY if rng.random() < 0.5 else OPS)
        arg = ins.arg if rng.random() < 0.3 else _argument(rng, code, name)
        if name != ins.name and _effect(name, arg) == wanted:
            is_jump = "JUMP" in name or name in {"FOR_ITER", "SEND"}
            ins.name, ins.arg = name, arg
            ins.target = (ins.target or rng.choice(found)) if is_jump else None
            return


def _replace(rng, code, found, _):
    at = rng.randrange(len(found))
    new = _made(rng, code, found)
    found[at].name, found[at].arg, found[at].target = new.name, new.arg, new.target


EDITS = [
    *(_insert, _insert_balanced, _insert_balanced, _delete, _delete_some, _double, _swap),
    *(_copy_block, _argument_of_one, _argument_of_one, _alike, _alike, _alike, _replace),
]
KINDS = [*[instructions] * 6, raw_bytes, raw_bytes, handlers_only, outside, outside]
assert CACHES
