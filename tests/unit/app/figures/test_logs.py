import json
import logging

import pytest

from walle_stream.app.figures.logs import configure_logging

OTHERS = ("walle_connectors", "walle_deploy", "kafka", "psycopg", "aiokafka", "faust", "mode")


@pytest.fixture
def log():
    loggers = [logging.getLogger(name) for name in ("walle_stream", *OTHERS)]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield logging.getLogger("walle_stream.test")
    for logger, handlers, level, propagates in before:
        logger.handlers, logger.propagate = handlers, propagates
        logger.setLevel(level)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("format_", ["text", "json"])
def test_lines_of_connectors_and_their_libraries_are_as_ours(name, format_, capsys):
    configure_logging(format_, "info", {"s3cret"})
    logging.getLogger(f"{name}.part").critical("got %s", "s3cret")
    [line] = capsys.readouterr().err.splitlines()
    assert "s3cret" not in line
    if format_ == "json":
        found = json.loads(line)
        told = found["level"], found["logger"], found["message"]
        assert told == ("critical", f"{name}.part", "got ***")
    else:
        assert line.endswith(f"Z CRITICAL {name}.part: got ***")


@pytest.mark.usefixtures("log")
def test_of_libraries_only_warnings_are_told(capsys):
    configure_logging("text", "debug")
    for name in OTHERS:
        logging.getLogger(name).info("news of %s", name)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" INFO ")[2] for line in lines] == [
        f"{name}: news of {name}" for name in ("walle_connectors", "walle_deploy")
    ]
    configure_logging("text", "info")
    logging.getLogger("kafka").error("no broker at this address yet")
    configure_logging("text", "error")
    for name in OTHERS:
        logging.getLogger(name).warning("warning of %s", name)
    assert capsys.readouterr().err == ""


def test_json_lines_have_the_fields_of_the_record(log, capsys):
    configure_logging("json", "info")
    log.info("run %d", 3, extra={"device_id": "d 1", "task": "ipv", "sequence_number": 7})
    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "walle_stream.test",
        "message": "run 3",
        "device_id": "d 1",
        "task": "ipv",
        "sequence_number": 7,
    }


def test_json_has_the_exception(log, capsys):
    configure_logging("json", "info")
    log.error("failed", exc_info=KeyError("gone"))
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "error"
    assert line["exception"].endswith("KeyError: 'gone'")


def test_text_is_one_line_a_record_with_its_ids(log, capsys):
    configure_logging("text", "debug")
    log.debug("first\nsecond", extra={"device_id": "d\n2026 ERROR forged", "partition": 4})
    [line] = capsys.readouterr().err.splitlines()
    assert r"DEBUG walle_stream.test: first\nsecond" in line
    assert line.endswith(r'device_id="d\n2026 ERROR forged" partition=4')


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("library", ["kafka", "psycopg"])
def test_clients_say_nothing_where_nobody_debugs(capsys, library):
    configure_logging("text", "info")
    logging.getLogger(library).error("gone")
    assert capsys.readouterr().err == ""
    configure_logging("text", "debug")
    logging.getLogger(library).warning("gone")
    assert capsys.readouterr().err.endswith("gone\n")


def test_text_shows_the_traceback(log, capsys):
    configure_logging("text", "info")
    log.error("failed", exc_info=KeyError("gone"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("ERROR walle_stream.test: failed")
    assert lines[-1] == "KeyError: 'gone'"


@pytest.mark.parametrize("format_", ["text", "json"])
def test_masked_values_appear_nowhere(log, capsys, format_):
    secrets = {"s3cret", "s3cret-longer", 'with "quotes"', "grün", ""}
    configure_logging(format_, "info", secrets)
    text = 's3cret-longer, with "quotes" and grün'
    ids = {"device_id": "s3cret", "task": "plain"}
    log.error("got %s", text, extra=ids, exc_info=KeyError("s3cret"))
    shown = capsys.readouterr().err
    for part in ("s3cret", "longer", "quotes", "grün"):
        assert part not in shown
    assert "got ***, *** and ***" in shown
    assert "plain" in shown


def test_levels_below_the_one_asked_for_are_left_out(log, capsys):
    configure_logging("text", "warning")
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in (shown := capsys.readouterr().err)
    assert "loud" in shown


def test_a_second_call_replaces_the_first(log, capsys):
    configure_logging("text", "info")
    configure_logging("json", "info")
    log.info("once")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.usefixtures("log")
def test_the_root_logger_is_left_alone():
    before = list(logging.getLogger().handlers)
    configure_logging("text", "info")
    assert logging.getLogger().handlers == before
