"""The client for administration, with errors of our own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka.errors import KafkaError, RetriableError, UnknownTopicOrPartitionError

from kafka import KafkaAdminClient
from walle_connectors.brokers import Connection
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError, TopicError

_TIMEOUT_MS: Final = 5_000
_TOLD: Final = re.compile(r"error_message=(['\"])(.+?)\1")


@contextmanager
def admin_client(connection: Connection) -> Iterator[Any]:
    """Give kafka-python's client for administration.

    Raises:
        BrokerUnreachableError: No broker answers, or one went away meanwhile.
        TopicError: The cluster refuses what it is asked.
    """
    probe_brokers(connection)
    options = connection.client_options()
    try:
        admin = KafkaAdminClient(
            **options, request_timeout_ms=_TIMEOUT_MS, bootstrap_timeout_ms=_TIMEOUT_MS
        )
    except KafkaError as error:
        hint = " (a TLS listener answers nobody without it)" if connection.tls is None else ""
        if connection.sasl is not None:
            # kafka-python keeps to itself which of them it was
            hint = f", or the login in `sasl` ({connection.sasl.mechanism}), which it may refuse"
        raise BrokerUnreachableError(
            f"{', '.join(connection.brokers)} accepts connections, but is no Kafka broker that "
            f"answers ({error}): correct `brokers` and `tls`{hint}"
        ) from error
    try:
        yield admin
    except UnknownTopicOrPartitionError as error:
        raise TopicError(f"the cluster refuses: {refusal(error)}: see walle topics") from error
    except RetriableError as error:
        # it went away in the middle, or is just starting: not what was asked is wrong
        raise BrokerUnreachableError(
            f"{', '.join(connection.brokers)} does not answer to the end ({error}): try again"
        ) from error
    except KafkaError as error:
        raise TopicError(f"the cluster refuses: {refusal(error)}: see the access rights") from error
    finally:
        admin.close()


def refusal(error: Any) -> str:
    """Say why a cluster refused (a ``KafkaError``), without the request and answer in its text."""
    text = str(error)
    if " failed with response " not in text:
        return text
    told = _TOLD.search(text)
    return f"{type(error).__name__}: {told[2] if told else error.description}"
