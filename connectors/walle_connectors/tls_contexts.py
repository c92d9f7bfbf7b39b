"""What TLS connections are made with, the same for every client and every look at a broker.

As kafka-python makes it from the same files: what one part of us takes, another must not refuse.
"""

import ssl
from pathlib import Path

from walle_stream.errors import BrokerUnreachableError


def client_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Read the files; ``ca`` signs the peers (the system's without), ours are for mutual TLS.

    Raises:
        OSError: A file cannot be read, or is not what it should be.
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
    """Read the files, and say of one that cannot be used what to do; see ``client_context``.

    Raises:
        BrokerUnreachableError: One is missing, or cannot be used.
    """
    for name, path in (("ca", ca), ("cert", cert), ("key", key)):
        if path is not None and not path.is_file():
            raise BrokerUnreachableError(
                f"there is no file {path}: correct `tls.{name}`, which cannot be read"
            )
    try:
        return client_context(ca, cert, key)
    except (OSError, ValueError) as error:
        raise BrokerUnreachableError(
            f"the files of `tls` cannot be used, or cannot be read ({_reason(error)}): they must "
            "be in PEM format, `key` that of `cert`"
        ) from error


def _refuse() -> str:
    # without it OpenSSL asks on the terminal, and waits
    raise OSError("`key` is encrypted: decrypt it by openssl pkey")


def _reason(error: Exception) -> str:
    # OpenSSL's words stand in capitals among its own places
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
