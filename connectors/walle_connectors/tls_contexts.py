"""The TLS context, the same for every client and every probe of a broker.

It equals the context that kafka-python makes from the same files. Otherwise one part of the
program would accept a broker that another part refuses.
"""

import ssl
from pathlib import Path

from walle_stream.errors import BrokerUnreachableError


def client_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return a context from files; reads them.

    ``ca`` has the authorities of the peers, None those of the system. ``cert`` and ``key`` are our
    own, for mutual TLS.

    Raises:
        OSError: A file cannot be read or has the wrong content.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    if cert is not None:
        context.load_cert_chain(cert, key, _refuse)
    return context


def checked_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return a context like ``client_context``; an error explains how to repair a file.

    Raises:
        BrokerUnreachableError: A file is missing or cannot be used.
    """
    for name, path in (("ca", ca), ("cert", cert), ("key", key)):
        if path is not None and not path.is_file():
            raise BrokerUnreachableError(f"there is no file {path}: correct `tls.{name}`")
    try:
        return client_context(ca, cert, key)
    except (OSError, ValueError) as error:
        raise BrokerUnreachableError(
            f"the files of `tls` cannot be used ({_reason(error)}): they must be readable and in "
            "PEM format, and `key` must belong to `cert`"
        ) from error


def _refuse() -> str:
    # without this callback OpenSSL would ask on the terminal and wait
    raise OSError("`key` is encrypted: decrypt it with openssl pkey")


def _reason(error: Exception) -> str:
    # OpenSSL's message has the reason in capitals between places in its own code
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
