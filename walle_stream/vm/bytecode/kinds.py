"""Kinds of values, and what instructions take and leave that look at nothing else.

The kinds are explained in ``bytecode``.
"""

# ruff: noqa: D103, PLR0911 - internal to the check: the table in bytecode says it

import dis
import opcode
import sys
from collections.abc import Callable
from types import CodeType
from typing import Final, Never

GENERATOR: Final = 0x20
"""Flag of a generator's code."""
GENERATOR_FLAGS: Final = GENERATOR | 0x80 | 0x200
"""Flags of code that can be suspended."""
VARARGS, VARKEYWORDS = 4, 8

IS_3_14: Final = sys.version_info >= (3, 14)
"""Whether this is not the oldest supported Python."""
KIND_OF_NAME: Final = {
    "__classdict__": "N",
    "__conditional_annotations__": "s",
    ".type_params": "t",
}
"""What a cell or global that the compiler named holds."""
TUPLES: Final = "tkTPAq"
"""Kinds that are tuples."""
_KIND_OF_ARGUMENT: Final = {".0": "i", ".defaults": "t", ".kwdefaults": "d"}
_NO_VALUE: Final = "n?!cfgxyN"


EFFECTS: Final[dict[str, str | Callable[[int], str]]] = {
    **dict.fromkeys(("NOP", "NOT_TAKEN", "RESUME", "SETUP_ANNOTATIONS"), ">"),
    **dict.fromkeys(("DELETE_NAME", "DELETE_GLOBAL"), ">"),
    **dict.fromkeys(("UNARY_INVERT", "UNARY_NEGATIVE", "UNARY_NOT", "TO_BOOL"), "o>o"),
    **dict.fromkeys(("GET_AWAITABLE", "GET_AITER", "CONVERT_VALUE"), "o>o"),
    **dict.fromkeys(("GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "GET_ANEXT"), "=o>o"),
    **dict.fromkeys(("BINARY_OP", "COMPARE_OP", "IS_OP", "CONTAINS_OP"), "oo>o"),
    **dict.fromkeys(("BINARY_SUBSCR", "FORMAT_WITH_SPEC"), "oo>o"),
    **dict.fromkeys(("LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_COMMON_CONSTANT"), ">o"),
    **dict.fromkeys(("LOAD_SMALL_INT", "RETURN_GENERATOR"), ">o"),
    **dict.fromkeys(("BEFORE_WITH", "BEFORE_ASYNC_WITH"), "o>oo"),
    **dict.fromkeys(("POP_TOP", "END_FOR", "POP_ITER"), "*>"),
    "BINARY_SLICE": "ooo>o",
    "BUILD_LIST": lambda n: "o" * n + (">l" if n else ">L"),
    "BUILD_MAP": lambda n: "oo" * n + ">d",
    "BUILD_SET": lambda n: "o" * n + ">s",
    "BUILD_SLICE": lambda n: "o" * n + ">o",
    "BUILD_STRING": lambda n: "o" * n + ">o",
    "CLEANUP_THROW": "ooe>oo",
    "DELETE_SUBSCR": "oo>",
    "END_ASYNC_FOR": "oe>",
    "GET_ITER": "o>i",
    "LOAD_LOCALS": ">N",
    "MATCH_KEYS": "=ot>o",
    "POP_EXCEPT": "x>",
    "PUSH_EXC_INFO": "e>xe",
    "PUSH_NULL": ">n",
    "STORE_SLICE": "oooo>",
    "STORE_SUBSCR": "ooo>",
    "UNPACK_SEQUENCE": lambda n: "o>" + "o" * n,
    "UNPACK_EX": lambda n: "o>" + "o" * ((n & 0xFF) + 1 + (n >> 8)),
    "WITH_EXCEPT_START": "=o?yxe>o" if IS_3_14 else "=oyxe>o",
}
INTRINSICS_1: Final = {
    3: "e>e",
    4: "o>o",
    5: "o>o",
    6: "l>t",
    7: "S>o",
    8: "S>o",
    9: "S>o",
    10: "t>o",
    11: "A>o",
}
INTRINSICS_2: Final = {2: "SF>o", 3: "SF>o", 4: "Ft>F", 5: "oF>o"}
# largest operand
BOUNDS: Final = {
    "BINARY_OP": len(opcode._nb_ops) - 1,  # type: ignore[attr-defined]  # noqa: SLF001 - no public form
    "BUILD_SLICE": 3,
    "COMPARE_OP": 0xBF,
    "CONTAINS_OP": 1,
    "CONVERT_VALUE": 3,
    "GET_AWAITABLE": 2,
    "IS_OP": 1,
    "LOAD_COMMON_CONSTANT": len(getattr(opcode, "_common_constants", ())) - 1,
    "LOAD_SMALL_INT": 255,
    "LOAD_SPECIAL": len(getattr(opcode, "_special_method_names", ())) - 1,
    "RESUME": 7,
    "YIELD_VALUE": 1,
}
CANNOT_RAISE: Final = frozenset(
    {
        *("POP_TOP", "POP_ITER", "END_FOR", "END_SEND", "POP_EXCEPT", "SWAP", "RETURN_VALUE"),
        *("STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"),
    }
)


def argument_kind(code: CodeType, name: str) -> str:
    if name == ".0":
        first = [dis.opname[op] for op in code.co_code[::2]]
        loops = [op for op in first if op in {"FOR_ITER", "GET_ANEXT"}]
        return "o" if loops[:1] == ["GET_ANEXT"] else "i"
    return _KIND_OF_ARGUMENT.get(name, "o")


def is_a(kind: str, want: str) -> bool:
    base = kind[0]
    match want:
        case "o":
            return base not in _NO_VALUE
        case "?":
            return base in "n?" or base not in _NO_VALUE
        case "*":  # the newer interpreter's POP_TOP takes no value, too
            return base != "!" and (IS_3_14 or base not in "n?")
        case "t":
            return base in TUPLES
        case "l":
            return base in "lL"
        case "m":
            return base in "me"
    return base == want


def join_kinds(one: str, other: str) -> str:
    if one == other:
        return one
    bases = one[0] + other[0]
    if "b" in bases or (len(one) > 1 and one[0] == "?") or (len(other) > 1 and other[0] == "?"):
        return "!"
    for family, kind in ((TUPLES, "t"), ("lL", "l")):
        if bases[0] in family and bases[1] in family:
            return kind
    if not any(base in _NO_VALUE for base in bases):
        return "o"
    return "?" if is_a(one, "?") and is_a(other, "?") else "!"


def join_slots(one: str, other: str) -> str:
    if one == other or "u" in {one, other}:
        return one if one == other else "u"
    return "o"


def refuse(text: str) -> Never:
    raise ValueError(text)
