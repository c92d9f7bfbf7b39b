"""Log lines of worker processes, which the driver takes and logs as its own."""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, override

from walle_stream.app.figures.logs import attach

type LogRecords = list[dict[str, Any]]
"""Attributes of log records, ready for transport."""

_KEPT: Final = 1_000
_TRAVEL: Final = (str, int, float, bool, type(None))


class LogQueue(logging.Handler):
    """Buffer of our records and libraries' warnings; when it is full the oldest are dropped."""

    def __init__(self, level: int) -> None:
        """Attach the queue to the loggers."""
        super().__init__()
        self._records: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        attach(self, level)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record with its formatted message."""
        fields = {name: value for name, value in vars(record).items() if isinstance(value, _TRAVEL)}
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            message += f" ({type(error).__name__}: {error})"
        fields |= {"msg": message, "args": None}
        self._records.append(fields)

    def take(self) -> LogRecords:
        """Return the records since the last call."""
        return [self._records.popleft() for _ in range(len(self._records))]


def log_again(records: Iterable[dict[str, Any]], source: str) -> None:
    """Log the records of another process in this one."""
    for fields in records:
        record = logging.makeLogRecord({**fields, "msg": f"{source}: {fields['msg']}"})
        logging.getLogger(record.name).handle(record)
