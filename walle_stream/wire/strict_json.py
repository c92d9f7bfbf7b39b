"""Whether bytes that a guest made are JSON that every reader takes alike.

Code that stores, sends or prints such bytes asks here first. They are one value and nothing else:
valid UTF-8, numbers that Python and msgspec can hold (no NaN, no infinity, integers of at most
4,300 digits), no key twice in an object, nested ``DEPTH_MAX`` deep at most, without a line end
between its tokens, as one value is one line wherever it is printed.

``msgspec`` decides all of that but keys that stand twice, depth and line ends. What it decoded
is written again: the same text has no key twice and no line end. Another text may be as good
(Python writes ``1e-05``): a key that stood twice is lost, and its colon with it, so both must
have as many colons. Only a text with an escape that may be a colon, or where the colons
differ, is read pair by pair.
"""

from collections.abc import Callable
from json import JSONDecoder
from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 256
"""Deepest nesting of objects and lists: readers in other languages stop soon behind."""

KEYS_MAX: Final = 100_000
"""Most keys of all objects of a value."""

_TOO_DEEP: Final = f"it is nested more than {DEPTH_MAX} deep"

_encode: Final = msgspec.json.Encoder().encode
_decode_any: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode
_decode_object: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(dict[str, Any]).decode


def object_problem(data: bytes) -> str | None:
    """Say why bytes are not one JSON object; takes about twice what decoding takes.

    The number of bytes is the caller's to bound. Returns a short reason without a word of the bytes
    but a key; None where nothing is wrong.
    """
    return _problem(data, _decode_object)


def value_problem(data: bytes) -> str | None:
    """Say why bytes are not one JSON value, as ``object_problem`` does."""
    return _problem(data, _decode_any)


def _problem(data: bytes, decode: Callable[[bytes], Any]) -> str | None:
    try:
        value = decode(data)
        encoded = _encode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _described(error)
    size_bytes = len(data)
    if encoded != data or size_bytes > KEYS_MAX:
        if b"\n" in data or b"\r" in data:
            return "a line end stands between its tokens"
        colons = data.count(b":")
        if colons != encoded.count(b":") or colons > KEYS_MAX or b"\\u003" in data:
            problem = _pairs_problem(data)
            if problem is not None:
                return problem
    # Between siblings, `},{`, one ends before the next begins: what is left bounds the depth,
    # whatever stands in texts, as each such place in a text has its own brace.
    if (
        size_bytes > 2 * DEPTH_MAX
        and data.count(b"{") + data.count(b"[") > DEPTH_MAX
        and data.count(b"{") + data.count(b"[") - data.count(b"},{") > DEPTH_MAX
        and _depth(value) > DEPTH_MAX
    ):
        return _TOO_DEEP
    return None


def _described(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    return str(error)


def _pairs_problem(data: bytes) -> str | None:
    # the bytes were decoded before: they are JSON
    key_count, twice = 0, list[str]()

    def take(pairs: list[tuple[str, Any]]) -> None:
        nonlocal key_count
        key_count += len(pairs)
        known = set[str]()
        for key, _ in pairs:
            if key in known:
                twice.append(key)
            known.add(key)

    try:
        JSONDecoder(object_pairs_hook=take).decode(data.decode())
    except RecursionError:
        return _TOO_DEEP
    if twice:
        return f"the key {twice[0][:100]!r} stands twice in an object"
    if key_count > KEYS_MAX:
        return f"it has {key_count:,} keys, at most {KEYS_MAX:,} are allowed"
    return None


def _depth(value: Any) -> int:
    # level by level, and no deeper than it is asked for
    depth, level = 0, [value] if type(value) in {dict, list} else []
    while level and depth <= DEPTH_MAX:
        depth += 1
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) in {dict, list}
        ]
    return depth
