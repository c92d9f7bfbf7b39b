"""Why a broker cannot be reached: an attempt whose failure says what is wrong.

Clients of Kafka try again for ever and say little; before one is made, and when
somebody asks (``walle doctor``), a connection is opened and closed here.
"""

import selectors
import socket
import ssl
from datetime import UTC, datetime
from typing import Final

from walle_connectors.brokers import Connection
from walle_connectors.kafka.certificates import certificate_end
from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.errors import BrokerUnreachableError

PROBE_TIMEOUT_S: Final = 3.0
"""Longest wait for one broker's answer."""

_ALERT_WAIT_MS: Final = 200  # TLS 1.3: a broker refuses our certificate after the handshake
_CLOSED: Final = "it closed the connection during the TLS handshake: is its listener TLS?"


def probe_brokers(connection: Connection, timeout_s: float = PROBE_TIMEOUT_S) -> datetime | None:
    """Open a connection to the first broker that answers, and close it; blocks.

    Args:
        connection: Which brokers, and the TLS.
        timeout_s: For each.

    Returns:
        When the broker's certificate expires; None without TLS, or when it cannot be told.

    Raises:
        BrokerUnreachableError: None answers as it should; says why for each.
    """
    context = connection.tls_context()
    reasons = []
    for address in connection.brokers:
        try:
            return probe_broker(address, context, timeout_s)
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {failure_reason(error)}{own_problem(connection)}")
    raise BrokerUnreachableError(
        f"no broker answers ({'; '.join(reasons)}): start one, or correct `brokers` and `tls`"
    )


def probe_broker(address: str, context: ssl.SSLContext | None, timeout_s: float) -> datetime | None:
    """Open a connection to one broker, and close it; blocks.

    Args:
        address: ``HOST:PORT``.
        context: For TLS.
        timeout_s: Longest wait.

    Returns:
        As ``probe_brokers``.

    Raises:
        SSLError: TLS is refused by either side.
        SSLEOFError: The broker hung up; an ``SSLError``, too.
        OSError: It does not answer.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.create_connection((host, int(port)), timeout_s) as plain:
        if context is None:
            return None
        with context.wrap_socket(plain, server_hostname=host) as encrypted:
            certificate = encrypted.getpeercert() or {}
            if not _is_welcome(encrypted):
                raise ssl.SSLEOFError(_CLOSED)
    ends = certificate.get("notAfter")
    if not isinstance(ends, str):
        return None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC)


def _is_welcome(encrypted: ssl.SSLSocket) -> bool:
    # to send anything might lose the alert that says why we are not: a broker that closes
    # with bytes unread resets the connection
    encrypted.settimeout(0)
    deadline_ms = monotonic_ms() + _ALERT_WAIT_MS
    with selectors.DefaultSelector() as selector:
        selector.register(encrypted, selectors.EVENT_READ)
        while True:
            try:
                return encrypted.recv(1) != b""
            except ssl.SSLWantReadError:
                session = encrypted.session
                if session is not None and session.has_ticket:
                    return True  # only who has accepted our certificate sends one
            except ConnectionError:
                return False
            left_ms = deadline_ms - monotonic_ms()
            if left_ms <= 0 or not selector.select(left_ms / 1000.0):
                return True  # nothing to say


def own_problem(connection: Connection) -> str:
    """Say what is wrong with our certificate, behind a broker's refusal; mostly nothing.

    Brokers on Java only say that it is "unknown".

    Args:
        connection: Whose certificate.
    """
    path = connection.tls.cert if connection.tls else None
    if path is None:
        return ""
    try:
        end = certificate_end(path)
    except (OSError, ValueError):
        return ""  # the library has read it: not ours to judge
    is_over = end.timestamp() * 1000 <= wall_ms()
    return f" (our certificate {path} expired on {end:%Y-%m-%d})" if is_over else ""


def failure_reason(error: Exception) -> str:
    """Say why a probe failed, in words for a person.

    Args:
        error: What ``probe_broker`` raised.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message or error.reason}"
    if isinstance(error, ssl.SSLEOFError):
        return _CLOSED
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        is_ours = "alert" in reason or "certificate" in reason
        return f"it refuses us: {reason}" if is_ours else f"TLS failed: {reason}"
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    return getattr(error, "strerror", None) or str(error)


_WORDS: Final = {TimeoutError: "no answer in time", socket.gaierror: "its name is not known"}
