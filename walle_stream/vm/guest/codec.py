"""JSON as features and state are written: compact, UTF-8, insertion order.

Encoding happens at the moment of ``emit`` and ``put``, decoding at every
``get``: a value that a script changes later changes nothing that was written,
so results cannot depend on which runs shared a batch.
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
    # the C encoder itself, made once: JSONEncoder.encode makes one per call, 1 us;
    # no markers: a list that contains itself ends as RecursionError instead
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
        ValueError: NaN, infinity, or text that is not valid Unicode.
        RecursionError: Nested too deep, or a container contains itself.
    """
    if type(value) is int:  # a counter, the usual state
        return b"%d" % value
    try:
        return "".join(_encode(value, 0)).encode()
    except RecursionError:
        # the interpreter's own words name stack addresses and sizes
        raise RecursionError(_TOO_DEEP) from None


def cut_json(value: Any, kind: type[Any]) -> tuple[list[bytes], list[Any]]:
    """Encode a value that has objects of one kind in it, and cut it where they stand.

    Objects of exactly that class may stand anywhere but as keys.

    Returns:
        Pieces of the text, one more than there are objects, and the objects in
        between, in order: what stands for them is put there later.

    Raises:
        TypeError: As ``encode_json``.
        ValueError: As ``encode_json``.
        RecursionError: As ``encode_json``.
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
        # more pieces than objects: a text of the value is the mark, too
        if len(pieces) == len(objects) + 1:
            return pieces, objects
        number += 1


def decode_json(data: bytes) -> Any:
    """Decode what ``encode_json`` wrote, anew at each call.

    Raises:
        JSONDecodeError: The bytes are not JSON: the store was damaged.
    """
    text = data.decode()
    try:
        return _scan(text, 0)[0]
    except StopIteration as error:
        raise JSONDecodeError("stored state is not JSON", text, int(error.value or 0)) from None
