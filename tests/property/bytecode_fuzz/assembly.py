"""Code objects as lists of instructions that can be changed, and back."""

import dis
import opcode
from types import CodeType

CACHES = opcode._inline_cache_entries
_JUMPS = {dis.opname[number] for number in dis.hasjrel}
_NO_PLACE = 0x80 | 15 << 3  # of a line table: an entry without a location


class Ins:
    """One instruction; a jump knows where it goes instead of how far."""

    def __init__(self, name, arg, target=None):
        self.name = name
        self.arg = arg
        self.target = target

    def copy(self):
        return Ins(self.name, self.arg, self.target)


def is_whole(raw):
    """Whether all caches are inside: making other code objects writes behind their end."""
    at = 0
    while at < len(raw):
        at += 2 + 2 * CACHES.get(dis.opname[raw[at]], 0)
    return at == len(raw) > 0


def disassemble(code):
    """Return the instructions and [first, behind the last, target, depth, lasti] per handler."""
    raw = code.co_code
    found, places = [], {}
    at = extended = 0
    start = 0
    while at < len(raw):
        name, arg = dis.opname[raw[at]], raw[at + 1] | extended
        at += 2 + 2 * CACHES.get(name, 0)
        if name == "EXTENDED_ARG":
            extended = arg << 8
            continue
        places[start] = ins = Ins(name, arg)
        ins.next = at
        found.append(ins)
        start, extended = at, 0
    places[len(raw)] = None
    for ins in found:
        if ins.name in _JUMPS:
            by = (
                -2 * ins.arg
                if "BACKWARD" in ins.name or ins.name == "END_ASYNC_FOR"
                else 2 * ins.arg
            )
            ins.target = places.get(ins.next + by)
    handlers = [
        [places.get(e.start), places.get(e.end), places.get(e.target), e.depth, e.lasti]
        for e in dis._parse_exception_table(code)
    ]
    return found, handlers


def assemble(code, found, handlers):
    """Put changed instructions into a code object; its flags and names stay."""
    sizes = dict.fromkeys(found, 1)
    while True:
        starts, at = {}, 0
        for ins in found:
            starts[ins] = at
            at += 2 * (sizes[ins] + CACHES.get(ins.name, 0))
        starts[None] = at
        is_settled = True
        for ins in found:
            if ins.target is not None:
                behind = starts[ins] + 2 * (sizes[ins] + CACHES.get(ins.name, 0))
                ins.arg = abs(starts.get(ins.target, 0) - behind) // 2
            needed = max(1, (ins.arg.bit_length() + 7) // 8)
            if needed > sizes[ins]:
                sizes[ins], is_settled = needed, False
        if is_settled:
            break
    data = bytearray()
    for ins in found:
        for part in range(sizes[ins] - 1, 0, -1):
            data += bytes([dis.opmap["EXTENDED_ARG"], ins.arg >> 8 * part & 255])
        data += bytes([dis.opmap[ins.name], ins.arg & 255])
        data += bytes(2 * CACHES.get(ins.name, 0))
    table = b"".join(
        _varints(
            starts.get(first, 0) // 2,
            max(starts.get(last, 0) - starts.get(first, 0), 0) // 2,
            starts.get(target, 0) // 2,
            max(depth, 0) << 1 | lasti,
        )
        for first, last, target, depth, lasti in sorted(handlers, key=lambda h: starts.get(h[0], 0))
    )
    changes = {"co_code": bytes(data), "co_exceptiontable": table}
    if len(data) != len(code.co_code):
        changes["co_linetable"] = no_lines(len(data) // 2)
    return changes


def no_lines(unit_count):
    whole, rest = divmod(unit_count, 8)
    return bytes([_NO_PLACE | 7] * whole + ([_NO_PLACE | rest - 1] if rest else []))


def _varints(*numbers):
    out = bytearray()
    for place, number in enumerate(numbers):
        parts = [number & 63]
        while number := number >> 6:
            parts.append(number & 63)
        encoded = [part | 64 for part in parts[:0:-1]] + [parts[0]]
        out += bytes([encoded[0] | (0 if place else 128), *encoded[1:]])
    return bytes(out)


def inner_codes(code):
    """All code objects with the path of places in the constants that leads to each."""
    yield (), code
    for place, each in enumerate(code.co_consts):
        if isinstance(each, CodeType):
            for path, inner in inner_codes(each):
                yield (place, *path), inner


def with_inner(code, path, new):
    """Return a code object with another one at a path."""
    if not path:
        return new
    consts = list(code.co_consts)
    consts[path[0]] = with_inner(consts[path[0]], path[1:], new)
    return code.replace(co_consts=tuple(consts))
