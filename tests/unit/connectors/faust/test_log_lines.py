"""What of Faust's and aiohttp's records reaches the log."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from aiohttp.http_exceptions import LineTooLong
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError

from walle_connectors.faust.log_lines import _MaskingFormatter, is_line, set_up_logging


def test_a_broker_that_goes_away_is_no_traceback(caplog):
    set_up_logging("warning")
    for error in (KafkaConnectionError("reset"), NodeNotReadyError("1"), ValueError("a bug")):
        try:
            raise error
        except Exception:
            logging.getLogger("faust.worker").exception("failed")
    assert [each.exc_info[0] for each in caplog.records] == [ValueError]


def test_what_is_no_request_is_one_line_in_the_log(caplog):
    set_up_logging("warning")
    try:
        raise LineTooLong("GET /xxx")
    except LineTooLong:
        logging.getLogger("aiohttp.server").exception("Error handling request")
    assert [each.getMessage() for each in caplog.records] == ["a request is refused: LineTooLong"]
    assert "Traceback" not in caplog.text


def line(name, message, *args, error=None):
    """Return what a handler with our filter writes of a record; None for nothing."""
    exc_info = (type(error), error, None) if error else None
    record = logging.LogRecord(name, logging.ERROR, __file__, 1, message, args, exc_info)
    return logging.Formatter().format(record) if is_line(record) else None


def test_a_worker_that_fails_says_so_once():
    failed, whole = SimpleNamespace(crashed=True), SimpleNamespace(crashed=False)
    lost = ValueError("too large")
    crash, stopping = "[^-App]: Crashed reason=%r", "[^Worker]: Error while stopping child %r: %r"
    assert line("faust.transport.producer", crash, lost, error=lost) is None
    assert line("faust.agents.actor", crash, asyncio.CancelledError(), error=lost) is None
    assert line("faust.worker", "[^_Worker]: We experienced a crash! Reraising") is None
    assert line("faust.worker", stopping, failed, lost, error=lost) is None
    # of one that was well it is news, in one line
    said = line("mode.services", stopping, whole, lost, error=lost)
    assert said.endswith("ValueError('too large')")
    assert "\n" not in said


def test_other_loggers_keep_their_tracebacks():
    assert "\nValueError: a bug" in line("walle_connectors.x", "failed", error=ValueError("a bug"))


def test_values_from_the_environment_never_leave():
    formatter = _MaskingFormatter(["geheim", "geheimtopic"])
    record = logging.LogRecord(
        "faust.x", logging.WARNING, "f", 1, "topic %s", ("geheimtopic",), None
    )
    text = formatter.format(record)
    assert "geheim" not in text
    assert "topic ***" in text
