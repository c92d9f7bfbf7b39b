"""Waits until a broker answers, before a client is made.

kafka-python tries until its time is over and then says that it could not; that a
certificate has expired stands only in its log. So we knock ourselves first.
"""

import ssl
import time
from typing import Final

from walle_connectors.brokers import Connection
from walle_connectors.probe import PROBE_TIMEOUT_S, failure_reason, probe_broker
from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError

_PAUSE_S: Final = 0.2


def expect_broker(connection: Connection, timeout_ms: int) -> None:
    """Return when one of the brokers answers, which may be starting; blocks.

    Raises:
        BrokerUnreachableError: None does in time, or TLS is refused by either side.
    """
    deadline_ms = monotonic_ms() + timeout_ms
    context = connection.tls_context()
    while True:
        reasons = []
        for broker in connection.brokers:
            try:
                probe_broker(broker, context, min(PROBE_TIMEOUT_S, timeout_ms / 1000.0))
            except ssl.SSLError as error:
                raise BrokerUnreachableError(
                    f"broker {broker}: TLS is refused: {failure_reason(error, connection.tls)}; "
                    "correct `tls`, or the certificates"
                ) from error
            except (OSError, ValueError) as error:
                reasons.append(failure_reason(error))
            else:
                return
        if monotonic_ms() >= deadline_ms:
            raise BrokerUnreachableError(
                f"no broker answers at {', '.join(connection.brokers)} within {timeout_ms} ms "
                f"({'; '.join(dict.fromkeys(reasons))}): start it, or correct `brokers`"
            )
        time.sleep(_PAUSE_S)
