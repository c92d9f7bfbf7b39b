"""Logging for the command line; the library itself adds no handler.

Invariants: The root logger is never changed. Handlers and levels are set for our loggers, those of
the shipped connectors, and those of their libraries (``_LIBRARIES``, warnings and above). One
record is one line of text or one JSON object; in text a traceback follows the line. Values to mask
never appear, in any field.
"""

import json
import logging
import re
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, Literal, override

from walle_stream.spec.document import masked

_ID_FIELDS: Final = ("device_id", "task", "sequence_number", "position", "partition")
"""Passed through ``extra=``; each becomes a field of its own."""

_OURS: Final = ("walle_stream", "walle_connectors", "walle_deploy")
_LIBRARIES: Final = ("kafka", "psycopg", "aiokafka", "faust", "mode")
_QUIET: Final = ("kafka", "psycopg")
"""Libraries that log each connection attempt; our own lines report an unreachable peer."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure_logging(
    format_: Literal["text", "json"], level: str, secrets: Collection[str] = ()
) -> None:
    """Send our log lines and libraries' warnings to stderr; a second call replaces the first.

    ``json`` writes one object per line: ``timestamp`` in UTC, ``level``, ``logger``, ``message``,
    the ids of the record, ``exception``. Secrets, such as values of ``${VAR}``, do not appear.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(secrets) if format_ == "json" else _TextFormatter(secrets))
    attach(handler, logging.getLevelNamesMapping()[level.upper()])


def attach(handler: logging.Handler, level: int) -> None:
    """Replace the current handler of all log lines of a run.

    Libraries log warnings and above; the loggers of ``_QUIET`` only critical lines unless the level
    is debug.
    """
    for name in (*_OURS, *_LIBRARIES):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level if name in _OURS else max(level, logging.WARNING))
    if level > logging.DEBUG:
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("walle_stream").propagate = False


class _FieldsFormatter(logging.Formatter):
    def __init__(self, secrets: Collection[str]) -> None:
        super().__init__()
        # longest first, so that no part of a longer value remains; an empty value would match
        # between all characters
        self._masked = sorted(filter(None, secrets), key=len, reverse=True)

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        # mask before quoting, as a quoted value would not match
        when = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
        }
        for name in _ID_FIELDS:
            if hasattr(record, name):
                value = getattr(record, name)
                fields[name] = value if isinstance(value, int) else self._mask(str(value))
        if record.exc_info:
            fields["exception"] = self._mask(self.formatException(record.exc_info))
        return fields

    def _mask(self, text: str) -> str:
        for value in self._masked:
            text = masked(text, value)
        return text


class _JsonFormatter(_FieldsFormatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self._fields(record), ensure_ascii=False)


class _TextFormatter(_FieldsFormatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = self._fields(record)
        # keep control characters of a message from the terminal
        message = _CONTROL.sub(lambda match: repr(match[0])[1:-1], str(fields["message"]))
        line = f"{fields['timestamp']} {record.levelname} {record.name}: {message}"
        for name in _ID_FIELDS:
            if name in fields:
                # quoted, because an id comes from outside and must not forge a line
                line += f" {name}={json.dumps(fields[name], ensure_ascii=False)}"
        return f"{line}\n{fields['exception']}" if "exception" in fields else line
