"""Log lines of another process."""

import logging

import pytest

from walle_stream.app.ray_logs import LogQueue, log_again


@pytest.fixture
def logger():
    logger = logging.getLogger("walle_stream")
    before = (logger.handlers, logger.level, logger.propagate)
    yield logger
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


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
