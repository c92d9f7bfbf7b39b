"""What a worker writes into its log: lines, no tracebacks of what is said in one line elsewhere."""

import asyncio
import logging
import sys
from collections.abc import Collection
from typing import Final, override

from aiohttp.http_exceptions import HttpProcessingError
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from walle_stream.spec.document import masked

_CRASHES: Final = ("Crashed reason=", "We experienced a crash")
_CHILD: Final = "Error while stopping child"


def set_up_logging(level: str, secrets: Collection[str] = ()) -> None:
    """Write log lines to stderr, Faust's of the level warning and above.

    Args:
        level: Of our own lines: debug, info, warning, error. With debug Faust's tracebacks, too.
        secrets: Values that must not appear, such as those from ``${VAR}``.
    """
    handler = logging.StreamHandler(sys.stderr)
    if level != "debug":
        handler.addFilter(is_line)
    handler.setFormatter(_MaskingFormatter(secrets))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("walle_connectors").setLevel(level.upper())
    logging.getLogger("aiohttp.server").addFilter(_without_traceback)
    logging.getLogger("faust.worker").addFilter(_is_news)


class _MaskingFormatter(logging.Formatter):
    def __init__(self, secrets: Collection[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        # the longest first, so that no part of a longer one is left
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for each in self._secrets:
            text = masked(text, each)
        return text


def is_away(error: object) -> bool:
    """Say whether an error is of a broker that is away."""
    # retriable: what was asked is not wrong, who was asked is away, or only starting
    is_missing = isinstance(error, UnknownTopicOrPartitionError)
    return isinstance(error, KafkaError) and error.retriable and not is_missing


def is_line(record: logging.LogRecord) -> bool:
    """Make a record of Faust one line, if it is news; a filter of a handler.

    Returns:
        False for what ``run_app`` says in its one line: that the app failed.
    """
    if not record.name.startswith(("faust.", "mode.")):
        return True
    error = record.exc_info[1] if record.exc_info else None
    record.exc_info = record.exc_text = None
    said = str(record.msg)
    if isinstance(error, asyncio.CancelledError) or any(each in said for each in _CRASHES):
        return False
    # how somebody ends who failed before is no news either
    return not (_CHILD in said and getattr(_first(record), "crashed", False))


def _first(record: logging.LogRecord) -> object:
    return record.args[0] if isinstance(record.args, tuple) and record.args else None


def _is_news(record: logging.LogRecord) -> bool:
    # that a broker went away is said in one line, by ``run_app``
    return not is_away(record.exc_info[1] if record.exc_info else None)


def _without_traceback(record: logging.LogRecord) -> bool:
    # whoever reaches the port could fill the log with what is no request
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg, record.args = "a request is refused: %s", (type(error).__name__,)
        record.exc_info = record.exc_text = None
    return True
