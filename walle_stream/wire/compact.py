"""JSON values as MessagePack in which longer strings are written only once.

Rows of a feature repeat their keys, and lists of events their kinds. A shop's feature of
1,195 bytes of JSON takes 924 bytes as MessagePack and 755 in this form, without a schema on
either side. The reader numbers the strings in the order of writing (a key before its value)
from 0: the first ``_KNOWN_MAX`` strings of at least ``_SHORTEST`` characters. A repeated
string is written as

- its number, in place of a key (keys of JSON are never numbers);
- one byte of ``bin``, in place of a value (JSON has no bytes).
"""

from typing import Any, Final

import msgspec

from walle_stream.errors import EnvelopeError

_KNOWN_MAX: Final = 128  # a number below takes one byte
_SHORTEST: Final = 3  # a shorter string takes no more than its reference

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_REFERENCES: Final = [bytes((number,)) for number in range(_KNOWN_MAX)]


def encode_compact(value: Any) -> bytes:
    """Encode a value as a JSON decoder returns it.

    Raises:
        OverflowError: An integer has more than 64 bits.
        RecursionError: The value is nested too deeply.
    """
    return _encode(_shorten(value, {}))


def decode_compact(data: bytes) -> Any:
    """Decode an untrusted value; the inverse of ``encode_compact``.

    Raises:
        EnvelopeError: The value refers to an unknown string, or has a type that JSON lacks.
        msgspec.MsgspecError: The bytes are not MessagePack.
        RecursionError: The value is nested too deeply.
    """
    return _restore(_decode(data), [])


def _shorten(value: Any, known: dict[str, int]) -> Any:
    if isinstance(value, str):
        number = _number(value, known)
        return value if number is None else _REFERENCES[number]
    if isinstance(value, list):
        return [_shorten(item, known) for item in value]
    if isinstance(value, dict):
        written: dict[str | int, Any] = {}
        for key, item in value.items():
            number = _number(key, known)
            written[key if number is None else number] = _shorten(item, known)
        return written
    return value


def _number(text: str, known: dict[str, int]) -> int | None:
    # returns the number of a known string; a new one is known from now on
    number = known.get(text)
    if number is None and len(text) >= _SHORTEST and len(known) < _KNOWN_MAX:
        known[text] = len(known)
    return number


def _restore(value: Any, known: list[str]) -> Any:
    if isinstance(value, str):
        _note(value, known)
        return value
    if isinstance(value, list):
        return [_restore(item, known) for item in value]
    if isinstance(value, dict):
        read = {}
        for key, item in value.items():
            if isinstance(key, str):
                _note(key, known)
                text = key
            else:
                text = _known(key, known)
            read[text] = _restore(item, known)
        return read
    if isinstance(value, bytes):
        return _known(value[0] if len(value) == 1 else value, known)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise EnvelopeError(f"a compact value has {type(value).__name__}, which JSON lacks")


def _note(text: str, known: list[str]) -> None:
    if len(text) >= _SHORTEST and len(known) < _KNOWN_MAX:
        known.append(text)


def _known(number: Any, known: list[str]) -> str:
    if type(number) is not int or not 0 <= number < len(known):
        raise EnvelopeError(f"a compact value refers to a string {number!r} that is not in it")
    return known[number]
