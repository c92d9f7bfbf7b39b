"""JSON of features and state: compact, UTF-8, in insertion order.

Values are encoded at ``emit`` and ``put``, and decoded at every ``get``. So a later
change of a value does not change written data, and results cannot depend on the
runs that share a batch.
"""

from collections.abc import Callable, Iterable
from json import JSONDecodeError, encoder
from json.decoder import JSONDecoder
from json.encoder import encode_basestring
from typing import Any, Final


def _refuse(value: object) -> Any:
    raise TypeError(
        f"a {type(value).__name__!r} object is not JSON: use dict, list, str, int, float, bool "
        "and None"
    )


_scan: Final[Callable[[str, int], tuple[Any, int]]] = vars(JSONDecoder())["scan_once"]


def _encoder(default: Callable[[Any], Any]) -> Callable[[Any, int], Iterable[str]]:
    # the C encoder itself, made once, because JSONEncoder.encode makes one per call in 1 us;
    # without markers, so that a list that contains itself raises RecursionError
    encode: Callable[[Any, int], Iterable[str]] = encoder.c_make_encoder(  # type: ignore[attr-defined] # not in the stubs
        None, default, encode_basestring, None, ":", ",", False, False, False  # noqa: FBT003 - its C signature
    )  # fmt: skip
    return encode


_encode: Final = _encoder(_refuse)
_TOO_DEEP: Final = "nested too deep for JSON, or a container contains itself"


def encode_json(value: Any) -> bytes:
    """Encode a JSON value as UTF-8 without spaces.

    Keys that are int, float, bool or None become text.

    Raises:
        TypeError: A value is not JSON.
        ValueError: The value has NaN, infinity, or invalid Unicode.
        RecursionError: The value is nested too deep, or contains itself.
    """
    if type(value) is int:  # a counter, the most common state
        return b"%d" % value
    try:
        return "".join(_encode(value, 0)).encode()
    except RecursionError:
        # the interpreter's own message has stack addresses and sizes
        raise RecursionError(_TOO_DEEP) from None


def cut_json(value: Any, kind: type[Any]) -> tuple[list[bytes], list[Any]]:
    """Encode a value that contains objects of one class, and cut the text at their places.

    Objects of exactly that class may be anywhere except in keys.

    Returns:
        The pieces of the text, and the objects between them, in order. There is
        one piece more than there are objects; their text is inserted later.

    Raises:
        TypeError: As for ``encode_json``.
        ValueError: As for ``encode_json``.
        RecursionError: As for ``encode_json``.
    """
    number = 0
    while True:
        objects: list[Any] = []
        mark = f"\0{number}"

        def hold(value: Any, objects: list[Any] = objects, mark: str = mark) -> str:
            if type(value) is not kind:
                _refuse(value)
            objects.append(value)
            return mark

        try:
            text = "".join(_encoder(hold)(value, 0)).encode()
        except RecursionError:
            raise RecursionError(_TOO_DEEP) from None
        pieces = text.split(b'"\\u0000%d"' % number)
        # otherwise a text of the value equals the mark, and another mark is tried
        if len(pieces) == len(objects) + 1:
            return pieces, objects
        number += 1


def decode_json(data: bytes) -> Any:
    """Decode bytes of ``encode_json`` into new objects.

    Raises:
        JSONDecodeError: The bytes are not JSON, because the store was damaged.
    """
    text = data.decode()
    try:
        return _scan(text, 0)[0]
    except StopIteration as error:
        raise JSONDecodeError("stored state is not JSON", text, int(error.value or 0)) from None
