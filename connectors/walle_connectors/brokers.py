"""Connection to a Kafka cluster for all connectors: its YAML keys and client options."""

import re
import ssl
from collections.abc import Hashable
from functools import partial
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from walle_connectors.logins import Sasl
from walle_connectors.tls_contexts import checked_context
from walle_connectors.tls_sessions import shared_sessions
from walle_stream.errors import BrokerUnreachableError
from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict

_ADDRESS: Final = re.compile(r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})$")
_PORT_MAX: Final = 65_535

RECONNECT_MAX_MS: Final = 1_000
"""Longest pause between two attempts to connect, so that clients soon find a restarted broker."""

CONNECT_MS: Final = 5_000
"""Longest attempt to connect, including the login: a dead broker may neither accept nor refuse."""


def _checked(addresses: tuple[str, ...]) -> tuple[str, ...]:
    for address in addresses:
        found = _ADDRESS.match(address)
        if found is None or not 0 < int(found[2]) <= _PORT_MAX:
            raise ValueError(f"expected HOST:PORT, found {address!r}")
    return addresses


Addresses = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    AfterValidator(_checked),
]
"""Addresses of brokers, each ``HOST:PORT``; a single address needs no list."""


type Driver = Literal["kafka-python", "confluent"]
"""Library that talks to a cluster; see ``walle_connectors.kafka.drivers``."""


def _named(topic: str) -> str:
    if topic in {".", ".."}:
        raise ValueError(f"expected a topic's name, but Kafka allows no topic {topic!r}")
    return topic


TopicName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=249),
    AfterValidator(_named),
]
"""A topic name that brokers allow."""


class Tls(Strict):
    """PEM files for TLS; ``cert`` and ``key`` add a client certificate (mutual TLS)."""

    ca: PathField | None = Field(
        default=None, description="Authorities of the brokers' certificates; default: the system's."
    )
    cert: PathField | None = Field(default=None, description="Our certificate (mutual TLS).")
    key: PathField | None = Field(default=None, description="Private key of `cert`.")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("expected `cert` and `key` together, or neither of them")
        return self


class Connection(Strict):
    """YAML keys that every section for Kafka has."""

    brokers: Addresses = Field(min_length=1, description="HOST:PORT of one or more brokers.")
    tls: Tls | None = Field(default=None, description="Encrypt the connection; plain if left out.")
    sasl: Sasl | None = Field(
        default=None, description="Login, with or instead of a client certificate."
    )
    client_id: str = Field(
        default="walle", min_length=1, max_length=200, description="Our name in the brokers' logs."
    )
    driver: Driver = Field(
        default="kafka-python",
        description="Library that talks to the brokers; confluent (librdkafka) is an extra.",
    )

    def places(self) -> dict[str, frozenset[Hashable]]:
        """Return the identities of the topics by key; see ``walle_stream.spec.places.HasPlaces``.

        Two lists of brokers without a common address count as two clusters.
        """
        names = {"topic": "topic", "downTopic": "down_topic"}
        topics = {key: getattr(self, name, None) for key, name in names.items()}
        return {
            key: frozenset((broker, topic) for broker in self.brokers)
            for key, topic in topics.items()
            if topic
        }

    def reach(self) -> dict[str, Any]:
        """Return the keys for another section, to reach the same brokers as the same client."""
        return {name: getattr(self, name) for name in Connection.model_fields}

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol, such as ``SASL_SSL``."""
        return f"{'SASL_' if self.sasl else ''}{'SSL' if self.tls else 'PLAINTEXT'}"

    def client_options(self) -> dict[str, Any]:
        """Return keyword arguments for any client of kafka-python; reads files.

        Raises:
            BrokerUnreachableError: A file with a password or a token cannot be read.
        """
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.brokers),
            "client_id": self.client_id,
            "reconnect_backoff_max_ms": RECONNECT_MAX_MS,
            "kafka_client": partial(_net_client, self),
        }
        if self.sasl is not None:
            options |= self.sasl.client_options()
        options["security_protocol"] = self.protocol
        if self.tls is not None:
            options["ssl_context"] = shared_sessions(self.tls.ca, self.tls.cert, self.tls.key)
        return options

    def no_answer(self, reason: object, *, is_login: bool = False) -> BrokerUnreachableError:
        """Return the error of brokers that accept connections but do not answer a client.

        ``is_login`` is true if a library reports that the brokers refuse the login.
        """
        brokers = ", ".join(self.brokers)
        if is_login and self.sasl is not None:
            return BrokerUnreachableError(
                f"{brokers} refuses the login in `sasl` ({self.sasl.mechanism}): {reason}: correct "
                "`sasl`"
            )
        hint = " (a TLS listener does not answer a plain client)" if self.tls is None else ""
        if self.sasl is not None:
            # a library may not report which of the two it was
            hint = f", or the login in `sasl` ({self.sasl.mechanism}), which it may refuse"
        return BrokerUnreachableError(
            f"{brokers} accepts connections but does not answer as a Kafka broker "
            f"({reason}): correct `brokers` and `tls`{hint}"
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context of a connection without kafka-python; None without TLS.

        Raises:
            BrokerUnreachableError: A file is missing, or cannot be used.
        """
        if self.tls is None:
            return None
        return checked_context(self.tls.ca, self.tls.cert, self.tls.key)

    def check_files(self) -> None:
        """Check the files that clients need, before a client is made that waits for brokers.

        Raises:
            BrokerUnreachableError: A file is missing, or cannot be used.
        """
        self.tls_context()
        if self.sasl is not None:
            self.sasl.client_options()


def _net_client(connection: Connection, **given: Any) -> Any:
    from walle_connectors.kafka.python_client import net_client  # noqa: PLC0415 - an extra

    return net_client(connection, **given)
