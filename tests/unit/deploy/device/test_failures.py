from walle_deploy.device.fleet import REASONS_MAX, Failures
from walle_stream.errors import IntegrityError, ServiceUnreachableError

AWAY = ServiceUnreachableError("h:1: away")
ONCE = "next attempt later; this is logged once for all devices with this failure"


def said(caplog):
    return [each.getMessage() for each in caplog.records]


def test_a_service_that_is_away_is_one_line_and_one_when_it_is_back(caplog):
    failures = Failures()
    for _ in range(3):
        for index in range(200):
            failures.add(index, f"d-{index}", AWAY)
    for index in range(200):
        assert len(caplog.records) == 1
        failures.clear(index)
        failures.clear(index)
    assert said(caplog) == [f"h:1: away; {ONCE}", "h:1: away; that is over"]
    failures.add(7, "d-7", AWAY)
    assert said(caplog)[2:] == [f"h:1: away; {ONCE}"]


def test_a_device_that_fails_for_good_hides_no_other_reason(caplog):
    failures = Failures()
    failures.add(0, "d-0", IntegrityError("no push"))
    for _ in range(2):
        failures.add(1, "d-1", AWAY)
        failures.clear(1)
    assert said(caplog) == [
        f"no push; {ONCE}",
        *[f"h:1: away; {ONCE}", "h:1: away; that is over"] * 2,
    ]


def test_another_reason_is_another_line_and_not_the_end_of_the_first(caplog):
    failures = Failures()
    failures.add(0, "d", AWAY)
    failures.add(0, "d", IntegrityError("no push"))
    failures.clear(0)
    assert said(caplog) == [
        f"h:1: away; {ONCE}",
        f"no push; {ONCE}",
        "no push; that is over",
    ]


def test_a_server_that_makes_up_reasons_cannot_fill_the_log(caplog):
    failures = Failures()
    for turn in range(5):
        for index in range(100):
            failures.add(index, f"d-{index}", IntegrityError(f"made up {turn} {index}"))
    assert len(caplog.records) == REASONS_MAX + 1


def test_a_mistake_of_ours_has_its_place(caplog):
    failures = Failures()
    try:
        {}["x"]
    except KeyError as error:
        failures.add(0, "d", error)
    assert "Traceback" in caplog.text
