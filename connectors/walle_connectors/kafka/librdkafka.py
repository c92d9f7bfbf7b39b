"""The driver ``confluent``: librdkafka under confluent-kafka, an extra of its own.

It moves several times as many records per CPU-second as kafka-python. Here is what its clients
have in common; this module does not import it.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Final
from weakref import ref

from walle_connectors.brokers import RECONNECT_MAX_MS, Connection
from walle_connectors.kafka.connecting import Reminder
from walle_stream.errors import BrokerUnreachableError

_log: Final = logging.getLogger(__name__)
_NO_RENEWAL: Final = "mechanism handshake failed"
_LOOK_S: Final = 1.0
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


def open_client[C](
    kind: Callable[[dict[str, Any]], C], connection: Connection, more: dict[str, Any]
) -> C:
    """Make a client, with more settings than those that all have.

    Where its login is refused, it takes the password as soon as the file has another.

    Raises:
        BrokerUnreachableError: A file with a password or a token cannot be read.
    """
    settings = client_settings(connection)
    on_error = more.get("error_cb", lambda _: None)
    renewal = _Renewal(connection, settings.get("sasl.password", ""))

    def take_error(error: Any) -> None:
        on_error(error)
        # a broker without connections.max.reauth.ms ends a connection so when a token is renewed
        if error.name() == "_AUTHENTICATION" and _NO_RENEWAL not in error.str():
            refused = connection.no_answer(error.str(), is_login=True)
            _refusals.warn(connection.brokers, f"{refused}; waited for")
            renewal.begin()

    # one of a class of our own can be referred to weakly
    own = type("Client", (kind,), {})  # type: ignore[arg-type]
    client: C = own(settings | more | {"error_cb": take_error})
    renewal.client = ref(client)
    return client


class _Renewal:
    """Gives a client the password of a file that has changed.

    By a thread of its own: the process aborts where that happens in a callback of the client.
    """

    def __init__(self, connection: Connection, password: str) -> None:
        self._connection, self._password = connection, password
        self.client: Callable[[], Any] = lambda: None
        self._lock = Lock()

    def begin(self) -> None:
        if self._password and self._lock.acquire(blocking=False):
            Thread(target=self._look, name="kafka-login", daemon=True).start()

    def _look(self) -> None:
        try:
            while self.client() is not None:
                settings = self._read()
                password = settings.get("sasl.password", self._password)
                client = self.client()
                if client is not None and password != self._password:
                    with suppress(RuntimeError):  # it was closed
                        client.set_sasl_credentials(settings["sasl.username"], password)
                    self._password = password
                    return
                del client
                Event().wait(_LOOK_S)
        finally:
            self._lock.release()

    def _read(self) -> dict[str, Any]:
        sasl = self._connection.sasl
        try:
            return {} if sasl is None else sasl.client_settings()
        except BrokerUnreachableError:
            return {}  # it is being written


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


class _Lines:
    # while a broker is away: dozens a second. What matters comes as an error, and we say it once

    def log(self, _level: int, message: str, *arguments: Any) -> None:
        _log.debug(message, *arguments)
