"""Probe of brokers: an attempt to connect whose failure explains what is wrong.

Kafka clients retry for ever and report little. So this module opens and closes a connection
before a client is made, after a client could not connect (``walle cloud``), and for
``walle doctor``.
"""

import selectors
import socket
import ssl
import time
from datetime import UTC, datetime
from typing import Final

from walle_connectors.brokers import Connection, Tls
from walle_connectors.certificates import certificate_end
from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError

PROBE_TIMEOUT_S: Final = 3.0
"""Longest wait for a broker's answer."""

_PAUSE_S: Final = 0.2
_ALERT_WAIT_MS: Final = 200  # TLS 1.3: a broker refuses our certificate after the handshake
_CLOSED: Final = "it closed the connection during the TLS handshake: does its listener use TLS?"


def probe_brokers(connection: Connection, patience_ms: float = 0.0) -> datetime | None:
    """Open a connection to the first broker that answers, and close it; blocks.

    Each attempt takes at most ``PROBE_TIMEOUT_S``. For ``patience_ms`` the probe is repeated, since
    a broker may be starting; it ends at once if a broker refuses TLS. Returns the expiry of the
    broker's certificate; None without TLS, or if the expiry is unknown.

    Raises:
        BrokerUnreachableError: No broker answers; the message has the reason for each.
    """
    deadline_ms, context = monotonic_ms() + patience_ms, connection.tls_context()
    while True:
        reasons, is_refused = [], False
        for address in connection.brokers:
            try:
                return probe_broker(address, context, PROBE_TIMEOUT_S)
            except (OSError, ValueError) as error:
                is_refused = is_refused or isinstance(error, ssl.SSLError)
                reasons.append(f"{address}: {failure_reason(error, connection.tls)}")
        if is_refused or monotonic_ms() >= deadline_ms:
            raise BrokerUnreachableError(
                f"no broker answers ({'; '.join(reasons)}): start one, or correct `brokers` and "
                "`tls`"
            )
        time.sleep(_PAUSE_S)


def probe_broker(address: str, context: ssl.SSLContext | None, timeout_s: float) -> datetime | None:
    """Open a connection to a broker (``HOST:PORT``) and close it; blocks; see ``probe_brokers``.

    Raises:
        SSLError: Either side refuses TLS.
        SSLEOFError: The broker closed the connection; a subclass of ``SSLError``.
        OSError: The broker does not answer.
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
    # nothing is sent: a broker that closes with unread bytes resets the connection, and its
    # alert with the reason may be lost
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
                    return True  # a broker sends a ticket only after it accepts our certificate
            except ConnectionError:
                return False
            left_ms = deadline_ms - monotonic_ms()
            if left_ms <= 0 or not selector.select(left_ms / 1000.0):
                return True  # no alert arrived


def failure_reason(error: Exception, tls: Tls | None = None) -> str:
    """Return the reason for a failure of ``probe_broker``, for people.

    Reads the certificate of ``tls``: a broker that refuses it does not report what is wrong.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message or error.reason}"
    if isinstance(error, ssl.SSLEOFError):
        return _CLOSED
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        is_ours = "alert" in reason or "certificate" in reason
        is_about_ours = "certificate" in reason or "unknown ca" in reason
        if not is_ours:
            return f"TLS failed: {reason}"
        return f"it refuses us: {reason}{_own_problem(tls) if is_about_ours else ''}"
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    return getattr(error, "strerror", None) or str(error)


def _own_problem(tls: Tls | None) -> str:
    if tls is None:
        return ""
    if tls.cert is None:
        return ", and we show none: set `tls.cert` and `tls.key`"
    try:
        ends = certificate_end(tls.cert)
    except (OSError, ValueError):
        return ""
    if ends <= datetime.now(UTC):
        return f", ours (`tls.cert`) expired on {ends.date().isoformat()}"
    return ", ours (`tls.cert`) may be signed by an authority that it does not know"


_WORDS: Final = {TimeoutError: "no answer in time", socket.gaierror: "its name cannot be resolved"}
