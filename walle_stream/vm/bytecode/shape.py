"""The shape of a code object: its instructions, tables, constants and variables."""

# ruff: noqa: D101, D103 - internal to the check: the table in bytecode says it

import dis
import opcode
from types import CodeType
from typing import Final, NamedTuple

from walle_stream.vm.bytecode.kinds import GENERATOR, refuse

MAX_STACK: Final = 100_000
"""Largest stack of a frame."""

_MAX_DEPTH: Final = 100
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, type(...))
_CACHES: Final[dict[str, int]] = opcode._inline_cache_entries  # type: ignore[attr-defined]  # noqa: SLF001 - no public form
_PLAIN_OPS: Final = frozenset(
    number
    for name, number in dis.opmap.items()
    if not name.startswith("INSTRUMENTED") and name not in {"CACHE", "RESERVED", "ENTER_EXECUTOR"}
)
_WITH_OPERAND: Final = frozenset(dis.hasarg)
_KNOWN_FLAGS: Final = 0x1F | GENERATOR | 0xC000000 | 0x1FE0000  # the latter: of __future__
_OPTIMIZED, _NEWLOCALS, _NESTED, _DOCSTRING = 1, 2, 16, 0x4000000


class Op(NamedTuple):
    start: int
    """With its EXTENDED_ARG prefixes."""
    next: int
    name: str
    arg: int


class _Handler(NamedTuple):
    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def refuse_specialised(code: CodeType) -> None:
    # ``co_code`` undoes what the interpreter put in and believes it is there: not asked before this
    raw: bytes = code._co_code_adaptive  # type: ignore[attr-defined]  # noqa: SLF001 - as it is
    at = 0
    while at < len(raw):
        name = dis.opname[raw[at]]
        if raw[at] not in _PLAIN_OPS:
            refuse(f"holds the instruction {name}")
        at += 2 + 2 * _CACHES.get(name, 0)
    if at != len(raw):  # ``co_code`` would clear caches behind the end of its bytes
        refuse("ends inside an instruction")


def decode(code: CodeType) -> list[Op]:
    raw, adaptive = code.co_code, code._co_code_adaptive  # type: ignore[attr-defined]  # noqa: SLF001 - what will be executed
    ops: list[Op] = []
    start = at = extended = prefixes = 0
    while at < len(raw) - 1:
        number, arg = raw[at], raw[at + 1] | extended
        name = dis.opname[number]
        caches = 2 * _CACHES.get(name, 0)
        # specialised instructions look like plain ones in co_code; their caches are empty
        if adaptive[at] != number or any(raw[at + 2 : at + 2 + caches]):
            refuse("holds specialised instructions")
        if any(adaptive[at + 4 : at + 2 + caches]) or at + 2 + caches > len(raw):
            refuse("holds an instruction with a cache that is not its own")
        at += 2 + caches
        if name == "EXTENDED_ARG":
            extended, prefixes = arg << 8, prefixes + 1
            if prefixes > 3:  # noqa: PLR2004 - four bytes in all
                refuse("an operand is too long")
            continue
        if arg >= 1 << 31:
            refuse("an operand is negative")
        # the interpreter skips some instructions and expects them without prefixes
        if (prefixes and not arg >> 8 * prefixes) or (arg and number not in _WITH_OPERAND):
            refuse("an operand is longer than it needs to be")
        ops.append(Op(start, at, name, arg))
        start, extended, prefixes = at, 0, 0
    if at != len(raw) or start != at or not ops:
        refuse("ends inside an instruction")
    return ops


def read_handlers(table: bytes) -> list[_Handler]:
    numbers: list[int] = []
    value, is_first = 0, True
    for byte in table:
        if bool(byte & 0x80) != (is_first and not len(numbers) % 4) or value >> 24:
            refuse("its exception table is malformed")
        value = value << 6 | byte & 0x3F
        is_first = not byte & 0x40
        if is_first:
            numbers.append(value)
            value = 0
    if not is_first or len(numbers) % 4:
        refuse("its exception table is cut off")
    handlers = []
    last = 0
    for start, length, target, packed in zip(*[iter(numbers)] * 4, strict=True):
        if start < last or not length:
            refuse("its exception table is not in order")
        last = start + length
        handlers.append(_Handler(2 * start, 2 * last, 2 * target, packed >> 1, bool(packed & 1)))
    return handlers


def check_lines(table: bytes, unit_count: int) -> None:
    at = units = 0
    while at < len(table):
        head = table[at]
        end = at + 1
        while end < len(table) and not table[end] & 0x80:
            end += 1
        kind, body = head >> 3 & 15, table[at + 1 : end]
        varint_count = 4 if kind == 14 else 1 if kind == 13 else 0  # noqa: PLR2004 - of the format
        if kind == 15 or varint_count:  # noqa: PLR2004 - no location
            is_right = sum(not byte & 0x40 for byte in body) == varint_count
            is_right = is_right and not (body and body[-1] & 0x40) and len(body) <= 5 * varint_count
        else:
            is_right = len(body) == (2 if kind >= 10 else 1)  # noqa: PLR2004 - of the format
        if not head & 0x80 or not is_right:
            refuse("its line table is malformed")
        units += (head & 7) + 1
        at = end
    if units != unit_count:
        refuse("its line table has another length than its code")


def _check_constant(value: object, depth: int = 0) -> None:
    kind = type(value)
    if kind in {tuple, frozenset} and depth < _MAX_DEPTH:
        for item in value:  # type: ignore[attr-defined] # one of the two
            _check_constant(item, depth + 1)
    elif kind is slice:
        _check_constant((value.start, value.stop, value.step), depth + 1)  # type: ignore[attr-defined] # a slice
    elif kind not in _PLAIN:
        refuse(f"holds a constant of the type {kind.__name__!r}")


def slot_names(code: CodeType) -> list[str]:
    local = code.co_varnames
    expected = [*local, *(c for c in code.co_cellvars if c not in local), *code.co_freevars]
    names = []
    for number in range(len(expected) + 1):
        try:
            names.append(code._varname_from_oparg(number))  # type: ignore[attr-defined]  # noqa: SLF001 - the true order
        except IndexError:
            break
    head, tail = names[: code.co_nlocals], names[len(names) - len(code.co_freevars) :]
    if sorted(names) != sorted(set(expected)) or head != [*local] or tail != [*code.co_freevars]:
        refuse("its variables are out of order")
    return names


def check_outside(code: CodeType, *, is_root: bool) -> None:
    flags = code.co_flags
    if flags & ~_KNOWN_FLAGS:  # those of coroutines, too: the gate has none
        refuse("has unknown flags")
    is_function = flags & (_OPTIMIZED | _NEWLOCALS) == _OPTIMIZED | _NEWLOCALS
    if (not is_function and flags & (0xF | GENERATOR)) or (is_root and is_function):
        refuse("its flags contradict each other")
    if not is_function and (code.co_argcount or code.co_kwonlyargcount):
        refuse("has arguments but is no function")
    if is_root and (code.co_freevars or flags & _NESTED):
        refuse("has variables of an outer function")
    if flags & _DOCSTRING and not (code.co_consts and type(code.co_consts[0]) is str):
        refuse("has no docstring where it says so")
    for constant in code.co_consts:
        if type(constant) is not CodeType:
            _check_constant(constant)
    if not 0 <= code.co_stacksize <= MAX_STACK:
        refuse("has a stack that is too large")
