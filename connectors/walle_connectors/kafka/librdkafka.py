"""The driver ``confluent``: librdkafka under confluent-kafka, an extra of its own.

It moves several times as many records per CPU-second as kafka-python. Here is what its clients
have in common; this module does not import it.
"""

import logging
from functools import partial
from typing import Any, Final

from walle_connectors.brokers import RECONNECT_MAX_MS, Connection
from walle_connectors.kafka.connecting import Reminder

_log: Final = logging.getLogger(__name__)
_NO_RENEWAL: Final = "mechanism handshake failed"
_refusals: Final = Reminder()  # of all clients

# as librdkafka names its errors: the client's own begin with an underscore
_WAITED_FOR: Final = {
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_WAIT_COORD"),
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_CONTROLLER", "NETWORK_EXCEPTION"),
    *("BROKER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"),
    "_AUTHENTICATION",  # a token may be renewed
}


def is_waited_for(error: Any) -> bool:
    """Return whether a broker is away that may come back: the client connects again by itself."""
    return error.retriable() or error.name() in _WAITED_FOR


def client_settings(connection: Connection) -> dict[str, Any]:
    """Return the settings that every client of librdkafka takes.

    Raises:
        BrokerUnreachableError: A file with a password or a token cannot be read.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(connection.brokers),
        "client.id": connection.client_id,
        # of each of a client's connections, of which there are several
        "reconnect.backoff.ms": RECONNECT_MAX_MS // 2,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "allow.auto.create.topics": False,
        # its lines go where ours do, when the client is polled
        "logger": _Lines(),
        "error_cb": partial(_tell_refusal, connection),
    }
    settings["security.protocol"] = connection.protocol.lower()
    if connection.sasl is not None:
        settings |= connection.sasl.client_settings()
    if connection.tls is not None:
        for name, path in (
            ("ssl.ca.location", connection.tls.ca),
            ("ssl.certificate.location", connection.tls.cert),
            ("ssl.key.location", connection.tls.key),
        ):
            if path is not None:
                settings[name] = str(path)
    return settings


def _tell_refusal(connection: Connection, error: Any) -> None:
    # a broker without connections.max.reauth.ms ends a connection so when a token is renewed
    if error.name() == "_AUTHENTICATION" and _NO_RENEWAL not in error.str():
        refused = connection.no_answer(error.str(), is_login=True)
        _refusals.warn(connection.brokers, f"{refused}; waited for")


class _Lines:
    # while a broker is away: dozens a second. What matters comes as an error, and we say it once

    def log(self, _level: int, message: str, *arguments: Any) -> None:
        _log.debug(message, *arguments)
