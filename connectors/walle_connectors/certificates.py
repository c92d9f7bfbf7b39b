"""Expiry of a certificate in a PEM file, without a library for certificates.

The standard library gives the expiry of a peer's certificate only. So this module walks
the DER of our own certificate up to its validity (RFC 5280, section 4.1).
"""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_LONG: Final = 0x80
_END: Final = "-----END CERTIFICATE-----"


def certificate_end(path: Path) -> datetime:
    """Return the time at which a PEM file's first certificate expires; reads the file.

    Raises:
        ValueError: The file holds no certificate.
        OSError: The file cannot be read.
    """
    text = path.read_text("ascii", "replace")
    begin = text.find("-----BEGIN CERTIFICATE-----")
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError(f"{path} holds no certificate in PEM format")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)]))
    except IndexError as error:
        raise ValueError(f"{path} holds a damaged certificate") from error


def _not_after(der: bytes) -> datetime:
    _, certificate, _ = _element(der)
    _, fields, _ = _element(certificate)
    tag, _, rest = _element(fields)
    if tag == _VERSION:
        _, _, rest = _element(rest)  # serial number
    for _ in range(2):  # signature's algorithm, issuer
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)  # not before
    tag, value, _ = _element(rest)
    layout = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag)
    if layout is None:
        raise ValueError("the end of a certificate's validity is not a time")
    return datetime.strptime(value.decode("ascii", "replace"), layout).replace(tzinfo=UTC)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    # tag, contents, remaining bytes
    tag, size, start = data[0], data[1], 2
    if size & _LONG:
        start += size & ~_LONG
        size = int.from_bytes(data[2:start])
    return tag, data[start : start + size], data[start + size :]
