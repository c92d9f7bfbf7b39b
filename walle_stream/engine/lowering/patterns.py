"""Translates RE2 regular expressions to Python's, for matches of a whole string.

Features that RE2 lacks (backreferences, lookarounds, possessive repetition) are refused. Features
that mean something else in Python are written out: ASCII classes, ends of text, and flags that
start in the middle of a group. Groups do not capture, and greed is ignored: a match of the whole
string depends on neither.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Final

from walle_stream.errors import LoweringError

type Ranges = tuple[tuple[int, int], ...]

_REPETITIONS_MAX: Final = 1000
_DIGIT: Final[Ranges] = ((48, 57),)
_WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
_PERL: Final[dict[str, Ranges]] = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),), "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT, "graph": ((33, 126),), "lower": ((97, 122),), "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),), "word": _WORD, "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
_ASSERTIONS: Final = {
    ".": ("s", "(?s:.)", r"[^\n]"), "^": ("m", "(?m:^)", r"(?:\A)"),
    "$": ("m", "(?m:$)", r"(?:\Z)"),
}  # fmt: skip
"""Flag on which a character depends, and its Python expression with and without the flag."""

_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_REPEAT: Final = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_GROUP: Final = re.compile(r"\?(?:P?<([A-Za-z_0-9]+)>|([imsU]*)(?:-([imsU]+))?([:)]))")

_NUMBER: Final = re.compile(
    r"x\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})|(0[0-7]{0,2}|[1-7][0-7]{1,2})"
)
_CATEGORY: Final = re.compile(r"\{(\^?)([A-Za-z_]+)\}|([A-Z])")
_NAMED: Final = re.compile(r"\[:(\^?)([a-z]+):\]")


@lru_cache(maxsize=256)
def translated(pattern: str) -> str:
    """Return an RE2 expression in Python's syntax, for ``re.fullmatch``.

    Raises:
        LoweringError: The pattern is not a valid RE2 expression.
    """
    result = _Translator(pattern).run()
    try:
        re.compile(result)
    except (re.error, OverflowError, RecursionError) as error:
        raise LoweringError(f"pattern {pattern!r}: {error}") from error
    return result


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._flags = frozenset[str]()
        self._outer: list[frozenset[str]] = []
        self._parts: list[str] = []
        self._has_atom = False
        self._is_repeated = False

    def run(self) -> str:
        while self._position < len(self._pattern):
            self._next()
        if self._outer:
            raise self._refused("a group is not closed")
        return "".join(self._parts)

    def _next(self) -> None:
        char = self._pattern[self._position]
        if char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._open()
        elif char in "*+?{" and self._repeat():
            pass
        else:
            self._position += 1
            self._plain(char)

    def _plain(self, char: str) -> None:
        if char == ")":
            if not self._outer:
                raise self._refused("a closing parenthesis has no open group")
            self._flags = self._outer.pop()
            self._atom(")")
        elif char == "|":
            self._parts.append("|")
            self._has_atom = False
        elif char in _ASSERTIONS:
            flag, with_flag, without = _ASSERTIONS[char]
            self._atom(with_flag if flag in self._flags else without)
        else:
            self._literal(char)

    def _atom(self, text: str) -> None:
        self._parts.append(text)
        self._has_atom, self._is_repeated = True, False

    def _literal(self, text: str) -> None:
        result = re.escape(text)
        self._atom(f"(?i:{result})" if "i" in self._flags else result)

    def _ranges(self, ranges: Ranges) -> None:
        inner = "".join(
            f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
            for low, high in ranges
        )
        result = f"[{inner}]" if ranges else "(?!)"
        self._atom(f"(?i:{result})" if "i" in self._flags else result)

    def _repeat(self) -> bool:
        match = _REPEAT.match(self._pattern, self._position)
        text = self._pattern[self._position]
        if text == "{":
            if match is None:
                return False
            text = match.group()
            counts = [int(count) for count in match.group(1, 3) if count]
            if max(counts) > _REPETITIONS_MAX or counts != sorted(counts):
                raise self._refused(f"the repetition {text} is not allowed")
        if not self._has_atom:
            raise self._refused(f"there is nothing before {text}")
        if self._is_repeated:
            raise self._refused(f"there are two repetitions in a row: {text}")
        self._position += len(text)
        if self._pattern.startswith("?", self._position):
            self._position += 1
        self._parts.append(text)
        self._is_repeated = True
        return True

    def _open(self) -> None:
        self._position += 1
        if not self._pattern.startswith("?", self._position):
            self._begin(self._flags)
            return
        match = _GROUP.match(self._pattern, self._position)
        if match is None or match.group() == "?)":
            raise self._refused(f"RE2 has no group (?{self._pattern[self._position + 1 :][:1]}")
        self._position = match.end()
        name, plus, minus, end = match.groups()
        flags = self._flags
        if name is None:
            flags = (flags | frozenset(plus)) - frozenset(minus or "")
        if end == ")":
            self._flags = flags
        else:
            self._begin(flags)

    def _begin(self, flags: frozenset[str]) -> None:
        self._outer.append(self._flags)
        self._flags = flags
        self._parts.append("(?:")
        self._has_atom = False

    def _escape(self) -> None:
        kind = self._pattern[self._position + 1 : self._position + 2]
        if kind == "Q":
            end = self._pattern.find("\\E", self._position)
            end = len(self._pattern) if end < 0 else end
            for character in self._pattern[self._position + 2 : end]:
                self._literal(character)
            self._position = end + 2
        elif kind in {"A", "z", "b", "B"}:
            self._position += 2
            # RE2's words are ASCII
            self._atom({"A": r"(?:\A)", "z": r"(?:\Z)"}.get(kind, f"(?a:\\{kind})"))
        else:
            result = self._one()
            if isinstance(result, str):
                self._literal(result)
            else:
                self._ranges(result)

    def _one(self) -> str | Ranges:
        # an escape, inside or outside a class: one character, or ranges
        pattern, begin = self._pattern, self._position
        kind = pattern[begin + 1 : begin + 2]
        self._position += 2
        if kind.lower() in _PERL:
            ranges = _PERL[kind.lower()]
            return ranges if kind.islower() else _complement(ranges)
        if kind in {"p", "P"}:
            return self._category(negated=kind == "P")
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        match = _NUMBER.match(pattern, begin + 1)
        if match is not None:
            self._position = match.end()
            wide, short, octal = match.groups()
            code = int(octal, 8) if octal else int(wide or short, 16)
            if code > sys.maxunicode:
                raise self._refused(f"there is no character {match.group()}")
            return chr(code)
        if not kind or kind.isalnum() or kind == "_" or not kind.isascii():
            raise self._refused(f"RE2 has no escape \\{kind}")
        return kind

    def _category(self, *, negated: bool) -> Ranges:
        match = _CATEGORY.match(self._pattern, self._position)
        name = match and (match.group(2) or match.group(3))
        if match is None or not name:
            raise self._refused("a Unicode class has no name")
        self._position = match.end()
        ranges = ((0, sys.maxunicode),) if name == "Any" else _category(name)
        if not ranges:
            raise self._refused(f"only general categories of Unicode are known, not {name!r}")
        return _complement(ranges) if negated != bool(match.group(1)) else ranges

    def _class(self) -> None:
        pattern = self._pattern
        self._position += 1
        negated = pattern.startswith("^", self._position)
        self._position += negated
        results: list[tuple[int, int]] = []
        is_first = True
        while is_first or not pattern.startswith("]", self._position):
            is_first = False
            item = self._member()
            if isinstance(item, str):
                high = item
                is_range = pattern.startswith("-", self._position)
                if is_range and pattern[self._position + 1 : self._position + 2] not in {"]", ""}:
                    self._position += 1
                    end = self._member()
                    if not isinstance(end, str) or end < item:
                        raise self._refused("a range of a class ends before it begins")
                    high = end
                results.append((ord(item), ord(high)))
            else:
                results.extend(item)
        self._position += 1
        ranges = _joined(results)
        if negated and "i" in self._flags:
            inner = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
            self._atom(f"(?i:[^{inner}])")
        else:
            self._ranges(_complement(ranges) if negated else ranges)

    def _member(self) -> str | Ranges:
        pattern = self._pattern
        if self._position >= len(pattern):
            raise self._refused("a class is not closed")
        named = _NAMED.match(pattern, self._position)
        if named is not None:
            self._position = named.end()
            if named.group(2) not in _POSIX:
                raise self._refused(f"there is no class {named.group()}")
            ranges = _POSIX[named.group(2)]
            return _complement(ranges) if named.group(1) else ranges
        if pattern[self._position] == "\\":
            return self._one()
        self._position += 1
        return pattern[self._position - 1]

    def _refused(self, reason: str) -> LoweringError:
        return LoweringError(f"pattern {self._pattern!r} at {self._position}: {reason}")


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    results: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if results and low <= results[-1][1] + 1:
            results[-1] = (results[-1][0], max(results[-1][1], high))
        else:
            results.append((low, high))
    return tuple(results)


def _complement(ranges: Ranges) -> Ranges:
    result, begin = [], 0
    for low, high in _joined(ranges):
        if low > begin:
            result.append((begin, low - 1))
        begin = high + 1
    if begin <= sys.maxunicode:
        result.append((begin, sys.maxunicode))
    return tuple(result)


@lru_cache(maxsize=64)
def _category(name: str) -> Ranges:
    codes = (
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)).startswith(name)
    )
    runs = groupby(enumerate(codes), lambda pair: pair[1] - pair[0])
    results = []
    for _, run in runs:
        members = [code for _, code in run]
        results.append((members[0], members[-1]))
    return tuple(results)
