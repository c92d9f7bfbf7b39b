"""Kinds of values, and what instructions take and leave that look at nothing else.

The kinds are explained in ``bytecode``.
"""

# ruff: noqa: D103, PLR0911 - internal to the check: the table in bytecode says it

import opcode
import sys
from collections.abc import Callable
from typing import Final, Never

GENERATOR: Final = 0x20
"""Flag of a generator's code."""
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
    **dict.fromkeys(("UNARY_INVERT", "UNARY_NEGATIVE"), "o>o"),
    **dict.fromkeys(("COMPARE_OP", "CONTAINS_OP", "IS_OP"), "oo>B"),
    **dict.fromkeys(("MATCH_MAPPING", "MATCH_SEQUENCE"), "=o>B"),
    "TO_BOOL": "o>B",
    "UNARY_NOT": "B>B",
    "CONVERT_VALUE": "o>o",
    "GET_LEN": "=o>o",
    "GET_YIELD_FROM_ITER": "v>j",
    **dict.fromkeys(("BINARY_OP",), "oo>o"),
    **dict.fromkeys(("BINARY_SUBSCR", "FORMAT_WITH_SPEC"), "oo>o"),
    **dict.fromkeys(("LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_COMMON_CONSTANT"), ">o"),
    **dict.fromkeys(("LOAD_SMALL_INT", "RETURN_GENERATOR"), ">o"),
    "BEFORE_WITH": "o>oo",
    **dict.fromkeys(("POP_TOP", "POP_ITER"), "*>"),
    "BINARY_SLICE": "ooo>o",
    "BUILD_LIST": lambda n: "o" * n + (">l" if n else ">L"),
    "BUILD_MAP": lambda n: "oo" * n + ">d",
    "BUILD_SET": lambda n: "o" * n + ">s",
    "BUILD_STRING": lambda n: "o" * n + ">o",
    "CLEANUP_THROW": "ooe>oo",
    "DELETE_SUBSCR": "oo>",
    "GET_ITER": "o>i",
    "LOAD_LOCALS": ">N",
    "MATCH_KEYS": "=ot>o",
    "PUSH_NULL": ">n",
    "STORE_SLICE": "oooo>",
    "STORE_SUBSCR": "ooo>",
    "UNPACK_SEQUENCE": lambda n: "o>" + "o" * n,
    "UNPACK_EX": lambda n: "o>" + "o" * ((n & 0xFF) + 1 + (n >> 8)),
    "WITH_EXCEPT_START": "=o?yxe>o" if IS_3_14 else "=oyxe>o",
}
INTRINSICS_1: Final = {
    3: "e>e",
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
    "COMPARE_OP": 0xBF,
    "CONTAINS_OP": 1,
    "IS_OP": 1,
    "LOAD_COMMON_CONSTANT": len(getattr(opcode, "_common_constants", ())) - 1,
    "LOAD_SMALL_INT": 255,
    "LOAD_SPECIAL": 1,  # of with, not of async with
    "RESUME": 7,
    "SEND": 100,  # kept in 16 bits; compiled code jumps over a few instructions
    "YIELD_VALUE": 1,
}
CANNOT_RAISE: Final = frozenset(
    {
        *("POP_TOP", "POP_ITER", "END_FOR", "END_SEND", "POP_EXCEPT", "SWAP", "RETURN_VALUE"),
        *("STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"),
    }
)
KEEPS_EXCEPTIONS: Final = CANNOT_RAISE | {
    *("COPY", "NOP", "NOT_TAKEN", "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "RETURN_CONST"),
    *("LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"),
    *(
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "PUSH_EXC_INFO",
        "DELETE_FAST",
    ),
    *("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"),
}
"""What cannot raise where a compiled script has it: not even by a name that is not bound."""


def argument_kind(name: str) -> str:
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
