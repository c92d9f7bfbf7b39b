"""Check that a guest's bytes are JSON that every reader understands in the same way.

Code that stores, sends or prints such bytes checks them here first. The bytes must be exactly one
value in valid UTF-8. Numbers must fit Python and msgspec: no NaN, no infinity, and integers of at
most 4,300 digits. An object has no key twice, and nesting is at most ``DEPTH_MAX`` deep. Tokens
have no line end between them, because a printed value must be one line.

``msgspec`` checks everything except repeated keys, depth and line ends. Its decoded value is
encoded again: if the text is the same, no key is repeated and there is no line end. Another text
may be valid, too (Python writes ``1e-05``). A repeated key would be lost with its colon, so both
texts must have the same number of colons. Only a text with an escape that may be a colon, or with
another number of colons, is read pair by pair.
"""

from collections.abc import Callable
from json import JSONDecoder
from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 256
"""Deepest nesting of objects and lists; readers in other languages stop not far beyond."""

KEYS_MAX: Final = 100_000
"""Largest number of keys in all objects of a value."""

_TOO_DEEP: Final = f"it is nested more than {DEPTH_MAX} deep"

_encode: Final = msgspec.json.Encoder().encode
_decode_any: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode
_decode_object: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(dict[str, Any]).decode


def object_problem(data: bytes) -> str | None:
    """Return why bytes are not one JSON object; None if they are.

    The check takes about twice the time of decoding, and the caller must bound the number of bytes.
    The reason is short, and may quote a key, but nothing else of the bytes.
    """
    return _problem(data, _decode_object)


def value_problem(data: bytes) -> str | None:
    """Return why bytes are not one JSON value, like ``object_problem``."""
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
            return "it has a line end between its tokens"
        colons = data.count(b":")
        if colons != encoded.count(b":") or colons > KEYS_MAX or b"\\u003" in data:
            problem = _pairs_problem(data)
            if problem is not None:
                return problem
    # At `},{` one sibling ends before the next begins, so such braces add no depth. The rest
    # bounds the depth, even with `},{` in texts, because each of these has its own brace.
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
    # the bytes were decoded before, so they are JSON
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
    # level by level, and no deeper than one beyond the bound
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
