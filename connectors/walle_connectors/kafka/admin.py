"""kafka-python's admin client, with our own errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka.errors import (
    KafkaError,
    RetriableError,
    SaslAuthenticationFailedError,
    UnknownTopicOrPartitionError,
)

from kafka import KafkaAdminClient
from walle_connectors.brokers import Connection
from walle_connectors.kafka.cluster import ASK_S
from walle_connectors.kafka.python_client import login_refusal
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError, TopicError

ASK_MS: Final = int(ASK_S * 1000)
"""Longest wait for one answer."""

_TOLD: Final = re.compile(r"error_message=(['\"])(.+?)\1")


@contextmanager
def admin_client(connection: Connection) -> Iterator[Any]:
    """Yield kafka-python's admin client.

    Raises:
        BrokerUnreachableError: No broker answers, or a broker stopped answering meanwhile.
        TopicError: The cluster refuses a request.
    """
    probe_brokers(connection)
    options = connection.client_options()
    try:
        admin = KafkaAdminClient(**options, request_timeout_ms=ASK_MS, bootstrap_timeout_ms=ASK_MS)
    except KafkaError as error:
        login = login_refusal(connection)
        raise connection.no_answer(login or error, is_login=bool(login)) from error
    try:
        yield admin
    except UnknownTopicOrPartitionError as error:
        raise TopicError(f"the cluster refuses: {refusal(error)}: see walle topics") from error
    except RetriableError as error:
        # the broker went away or is still starting: the request itself is not at fault
        raise BrokerUnreachableError(
            f"{', '.join(connection.brokers)} stopped answering ({error}): try again"
        ) from error
    except SaslAuthenticationFailedError as error:
        raise connection.no_answer(error, is_login=True) from error
    except KafkaError as error:
        raise TopicError(f"the cluster refuses: {refusal(error)}: see the access rights") from error
    finally:
        admin.close()


def refusal(error: Any) -> str:
    """Return the reason of a refusal (a ``KafkaError``) without its request and response text."""
    text = str(error)
    if " failed with response " not in text:
        return text
    told = _TOLD.search(text)
    return f"{type(error).__name__}: {told[2] if told else error.description}"
