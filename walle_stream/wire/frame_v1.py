"""The first layout of an uplink frame's body: read for outboxes that still hold some.

Nothing writes it any more. Integers little-endian, behind the header of
``wire.payload``::

    payload:  u16 count of names { u16 length, UTF-8 }      tasks and versions, interned
              u32 count of records {
                  u16 length of the device id   (0xFFFF: the same device as before)
                  device id, UTF-8
                  u16 task  u16 version         indexes of names
                  u64 sequence number
                  u32 length of feature  u16 length of encoding
                  feature, encoding }
"""

import struct
from struct import Struct
from typing import Final

BODY_VERSION_1: Final = 1
"""Version of the layout."""

_COUNT: Final = Struct("<I")
_SHORT: Final = Struct("<H")
_RECORD: Final = Struct("<HHQIH")
_SAME_DEVICE: Final = 0xFFFF


def decode_records_1(payload: bytes) -> list[tuple[str, str, str, int, bytes, bytes]]:
    """Decode a payload of this layout.

    Args:
        payload: Unpacked; not trusted.

    Returns:
        The fields of ``FeatureRecord``, in their order.

    Raises:
        ValueError: It is cut or altered.
    """
    try:
        return _decode(payload)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ValueError(str(error)) from error


def _decode(payload: bytes) -> list[tuple[str, str, str, int, bytes, bytes]]:
    names = []
    position = 2
    for _ in range(_SHORT.unpack_from(payload)[0]):
        end = position + 2 + _SHORT.unpack_from(payload, position)[0]
        names.append(payload[position + 2 : end].decode())
        position = end
    (count,) = _COUNT.unpack_from(payload, position)
    position += 4
    records = []
    device_id = ""
    for _ in range(count):
        (length,) = _SHORT.unpack_from(payload, position)
        position += 2
        if length != _SAME_DEVICE:
            device_id = payload[position : position + length].decode()
            position += length
        task, version, number, feature, encoding = _RECORD.unpack_from(payload, position)
        middle = position + _RECORD.size + feature
        start, position = position + _RECORD.size, middle + encoding
        if position > len(payload):
            raise IndexError("a record reaches beyond the end")
        parts = payload[start:middle], payload[middle:position]
        records.append((device_id, names[task], names[version], number, *parts))
    if position != len(payload):
        raise IndexError("bytes are left behind the last record")
    return records
