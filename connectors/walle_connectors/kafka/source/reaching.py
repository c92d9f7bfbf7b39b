"""Whether a broker answers, and why not, before a client is made.

kafka-python tries until its time is over and then says that it could not; that a
certificate has expired stands only in its log. So we knock ourselves first.
"""

import socket
import ssl
import time
from typing import Final

from walle_connectors.kafka.connection import Connection, Tls
from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError

_TRY_S: Final = 3.0  # for one broker
_ALERT_S: Final = 0.2  # TLS 1.3 refuses our certificate only after the handshake
_PAUSE_S: Final = 0.2


def expect_broker(connection: Connection, timeout_ms: int) -> None:
    """Return when one of the brokers answers; blocks.

    Args:
        connection: Where they are.
        timeout_ms: How long is waited for one that is starting.

    Raises:
        BrokerUnreachableError: None does in time, or TLS is refused by either side.
    """
    deadline_ms = monotonic_ms() + timeout_ms
    names = ", ".join(connection.brokers)
    while True:
        reasons = []
        for broker in connection.brokers:
            try:
                _knock(broker, connection.tls, min(_TRY_S, timeout_ms / 1000.0))
            except ssl.SSLError as error:
                raise BrokerUnreachableError(
                    f"broker {broker}: TLS is refused: {_tls_reason(error)}; correct `tls`, or "
                    "the certificates"
                ) from error
            except OSError as error:
                reasons.append(f"{error.strerror or error}")
            else:
                return
        if monotonic_ms() >= deadline_ms:
            raise BrokerUnreachableError(
                f"no broker answers at {names} within {timeout_ms} ms "
                f"({'; '.join(dict.fromkeys(reasons))}): start it, or correct `brokers`"
            )
        time.sleep(_PAUSE_S)


def _knock(broker: str, tls: Tls | None, timeout_s: float) -> None:
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    with socket.create_connection((host, int(port)), timeout_s) as plain:
        if tls is None:
            return
        with _context(tls).wrap_socket(plain, server_hostname=host) as secured:
            secured.settimeout(_ALERT_S)
            try:
                secured.recv(1)
            except TimeoutError:
                return  # it waits for us to speak: accepted
            except ConnectionError as error:
                raise ssl.SSLError(f"the broker hung up ({error})") from error


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except ssl.SSLError as error:
        raise BrokerUnreachableError(
            f"tls: a certificate or key cannot be used ({error.reason or error}): correct `tls`"
        ) from error
    except OSError as error:
        files = ", ".join(str(each) for each in (tls.ca, tls.cert, tls.key) if each)
        raise BrokerUnreachableError(
            f"tls: one of {files} cannot be read ({error.strerror}): correct `tls`"
        ) from error
    return context


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).lower().replace("_", " ")
