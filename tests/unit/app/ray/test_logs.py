"""Log lines of another process."""

import logging

import pytest

from walle_stream.app.ray.logs import LogQueue, log_again


@pytest.fixture
def logger():
    names = (
        "walle_stream",
        "walle_connectors",
        "walle_deploy",
        "kafka",
        "aiokafka",
        "faust",
        "mode",
    )
    loggers = [logging.getLogger(name) for name in names]
    before = [(each, each.handlers, each.level, each.propagate) for each in loggers]
    yield loggers[0]
    for each, handlers, level, propagates in before:
        each.handlers, each.propagate = handlers, propagates
        each.setLevel(level)


def test_connectors_lines_travel_too(logger):
    queue = LogQueue(logging.INFO)
    logging.getLogger("walle_connectors.kafka").info("goes on")
    logging.getLogger("kafka.client").info("not of interest")
    assert [each["msg"] for each in queue.take()] == ["goes on"]
    assert logger.handlers == [queue]


def test_a_record_travels_with_its_ids_and_its_error(logger, caplog):
    queue = LogQueue(logging.INFO)
    child = logging.getLogger("walle_stream.x")
    try:
        raise ValueError("no")
    except ValueError:
        child.exception("a run of %s failed", "t", extra={"device_id": "d", "object": object()})
    child.debug("below the level")
    records = queue.take()
    assert queue.take() == []
    logger.handlers, logger.propagate = [], True
    log_again(records, "host 1")
    [record] = caplog.records
    assert record.getMessage() == "host 1: a run of t failed (ValueError: no)"
    assert (record.name, record.device_id) == ("walle_stream.x", "d")
    assert not hasattr(record, "object")
