"""Logging for the command line; the library itself adds no handler."""

import json
import logging
import sys
from collections.abc import Collection
from typing import Final, Literal

_ID_FIELDS: Final = ("device_id", "task", "position", "sequence_number", "partition")
_MASK: Final = "***"


def configure_logging(
    format_: Literal["text", "json"], level: str, masked: Collection[str] = ()
) -> None:
    """Send the library's log lines to stderr.

    Args:
        format_: ``text`` for people, ``json`` for programs (an object a line).
        level: ``debug``, ``info``, ``warning`` or ``error``.
        masked: Values that must not appear, such as those from ``${VAR}``.
    """
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter = _JsonFormatter() if format_ == "json" else plain
    handler.setFormatter(_Masking(formatter, masked))
    logger = logging.getLogger("walle_stream")
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in _ID_FIELDS:
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _Masking(logging.Formatter):
    def __init__(self, inner: logging.Formatter, masked: Collection[str]) -> None:
        super().__init__()
        self._inner = inner
        # the longest first, so that no part of a longer one is left
        self._masked = sorted(masked, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record)
        for value in self._masked:
            text = text.replace(value, _MASK)
        return text
