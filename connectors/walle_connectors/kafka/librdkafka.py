"""Shared code of the driver ``confluent``: librdkafka under confluent-kafka, an extra of its own.

The driver moves several times as many records per CPU-second as kafka-python. This module does not
import the library.
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
_refusals: Final = Reminder()  # shared by all clients

# names of librdkafka's errors; those of the client itself begin with an underscore
_WAITED_FOR: Final = {
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_WAIT_COORD"),
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_CONTROLLER", "NETWORK_EXCEPTION"),
    *("BROKER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"),
    "_AUTHENTICATION",  # a token may be renewed
}


def is_waited_for(error: Any) -> bool:
    """Return whether the error may pass: the client itself reconnects when the broker is back."""
    return error.retriable() or error.name() in _WAITED_FOR


def open_client[C](
    kind: Callable[[dict[str, Any]], C], connection: Connection, more: dict[str, Any]
) -> C:
    """Make a client with the common settings and those of ``more``.

    After a refused login, the client takes a new password as soon as the file has it.

    Raises:
        BrokerUnreachableError: A file with a password or a token cannot be read.
    """
    settings = client_settings(connection)
    on_error = more.get("error_cb", lambda _: None)
    renewal = _Renewal(connection, settings.get("sasl.password", ""))

    def take_error(error: Any) -> None:
        on_error(error)
        # a broker without connections.max.reauth.ms ends a connection with this error on renewal
        # of a token
        if error.name() == "_AUTHENTICATION" and _NO_RENEWAL not in error.str():
            refused = connection.no_answer(error.str(), is_login=True)
            _refusals.warn(connection.brokers, f"{refused}; waiting")
            renewal.begin()

    # only an instance of a Python class supports weak references
    own = type("Client", (kind,), {})  # type: ignore[arg-type]
    client: C = own(settings | more | {"error_cb": take_error})
    renewal.client = ref(client)
    return client


class _Renewal:
    """Passes a changed password file on to a client.

    It uses a thread of its own, since doing so in a callback of the client aborts the process.
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
                    with suppress(RuntimeError):  # the client was closed
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
            return {}  # the file is being written


def client_settings(connection: Connection) -> dict[str, Any]:
    """Return the settings that all clients of librdkafka share.

    Raises:
        BrokerUnreachableError: A file with a password or a token cannot be read.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(connection.brokers),
        "client.id": connection.client_id,
        # halved, since it applies to each of a client's several connections
        "reconnect.backoff.ms": RECONNECT_MAX_MS // 2,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "allow.auto.create.topics": False,
        # polling the client passes its log lines to our logger
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
    # debug level: dozens of lines a second while a broker is down; errors are reported elsewhere

    def log(self, _level: int, message: str, *arguments: Any) -> None:
        _log.debug(message, *arguments)
