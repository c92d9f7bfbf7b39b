"""Translation of kafka-python's errors to ours when a topic is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka import errors
from walle_stream.errors import BrokerUnreachableError, SourceError

_GONE: Final = (
    errors.UnknownTopicOrPartitionError,
    errors.UnknownTopicIdError,
    errors.InconsistentTopicIdError,
)


@contextmanager
def source_errors(name: str) -> Iterator[None]:
    """Translate kafka-python's errors to ours.

    Raises:
        SourceError: Any other error of a broker or of the library.
        BrokerUnreachableError: No broker answered, or every broker refuses the login.
    """
    try:
        yield
    except errors.MetadataEmptyBrokerList as error:
        # the library's text would be the whole response
        raise BrokerUnreachableError(
            f"topic {name!r}: the broker is still starting and knows no broker yet: run again"
        ) from error
    except (errors.KafkaTimeoutError, errors.KafkaConnectionError) as error:
        raise BrokerUnreachableError(
            f"topic {name!r}: the brokers do not answer ({error}): start them, or correct "
            "`tls` and `sasl` (a listener does not answer clients with other settings or a "
            "refused login), and run again"
        ) from error
    except errors.SaslAuthenticationFailedError as error:
        raise BrokerUnreachableError(
            f"topic {name!r}: the brokers refuse the login in `sasl` ({error}): renew or correct "
            "it, and run again"
        ) from error
    except errors.AuthorizationError as error:
        raise SourceError(
            f"topic {name!r}: reading is not allowed ({type(error).__name__}): grant READ and "
            "DESCRIBE on topic and group to this client"
        ) from error
    except _GONE as error:
        raise SourceError(
            f"topic {name!r} is gone: it was deleted while it was read; committed data are kept. "
            "Create it and run again: spec.source.onMissingOffset says where to begin"
        ) from error
    except errors.KafkaError as error:
        raise SourceError(
            f"reading of topic {name!r} failed ({type(error).__name__}: {error}): committed data "
            "are kept, run again"
        ) from error


def is_gone(error: BaseException) -> bool:
    """Return whether brokers report that a topic is missing or was recreated."""
    return isinstance(error, _GONE)
