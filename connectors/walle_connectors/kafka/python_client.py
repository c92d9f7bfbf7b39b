"""Login of the client under kafka-python's consumers, producers and admin clients.

The library's own client reads a password once, hides a refusal and retries without a pause.
"""

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Final, override

from kafka.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from walle_connectors.brokers import CONNECT_MS, Connection
from walle_connectors.kafka.connecting import Reminder
from walle_stream.errors import BrokerUnreachableError

_reminder: Final = Reminder()  # shared by all clients
_LOOK_MS: Final = 20.0
_refused: Final = dict[Hashable, Exception]()  # by brokers and login


def net_client(connection: Connection, **given: Any) -> Any:
    """Make a client with the settings that kafka-python passes to its own client."""
    # By default an attempt to connect takes 10 s, and 30 s after some refusals. Meanwhile a
    # producer does not ask for new leaders of the dead broker's partitions.
    given["socket_connection_setup_timeout_ms"] = CONNECT_MS
    given["socket_connection_setup_timeout_max_ms"] = CONNECT_MS
    net = NetworkSelector(**given)
    made = _ProducerClient if "linger_ms" in given else KafkaNetClient
    return made(net, _Manager(connection, net, **given), **given)


def login_refusal(connection: Connection) -> Exception | None:
    """Return the brokers' refusal of the last login; None if they accepted it."""
    return _refused.get((connection.brokers, connection.sasl))


class _ProducerClient(KafkaNetClient):  # type: ignore[misc]
    @override
    def connection_delay(self, node_id: Any) -> Any:
        # A producer takes the seconds for milliseconds, and gets 0 during a connection attempt: it
        # would poll thousands of times a second. An answer of the broker wakes it at once.
        return max(super().connection_delay(node_id) * 1_000, _LOOK_MS)


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    def __init__(self, connection: Connection, net: Any, **given: Any) -> None:
        self._to = connection
        self._key = connection.brokers, connection.sasl
        self._watched: dict[Any, Any] = {}
        self._refusing: set[Any] = set()
        super().__init__(net, **given)

    @override
    def get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
        sasl, known = self._to.sasl, self._watched.get(node_id)
        is_new = sasl is not None and (known is None or known.closed)
        if sasl is not None and is_new:
            with suppress(BrokerUnreachableError):  # the file is being written
                self.config |= sasl.client_options()
        connection = super().get_connection(node_id, *arguments, **options)
        if is_new and connection is not known:
            self._watched[node_id] = connection
            connection.init_future.add_callback(lambda _: self._take_success(node_id))
            connection.init_future.add_errback(lambda error: self._take_failure(node_id, error))
        return connection

    @override
    def reset_backoff(self, node_id: Any) -> None:
        # the library calls this after a refused login, too, so pauses would never grow
        if node_id not in self._refusing:
            super().reset_backoff(node_id)

    def _take_success(self, node_id: Any) -> None:
        self._refusing.discard(node_id)
        _refused.pop(self._key, None)

    def _take_failure(self, node_id: Any, error: Exception) -> None:
        if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
            _refused[self._key] = error
            self._refusing.add(node_id)
            refusal = self._to.no_answer(error, is_login=True)
            _reminder.warn(self._key, f"{refusal}; waiting")
            self.update_backoff(node_id)
