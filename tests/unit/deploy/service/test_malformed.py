from collections import Counter

from walle_deploy.service import seldom as module
from walle_deploy.service.malformed import MalformedRequests


def test_all_are_counted_and_the_first_in_a_minute_is_logged(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now[0])
    answers = Counter()
    requests = MalformedRequests(answers)
    for at_ms in (0.0, 1.0, 59_999.0, 60_000.0, 60_001.0):
        now[0] = at_ms
        requests.add(("10.0.0.7", 4711))
    assert answers == {"bad_request": 5}
    first, second = [each.getMessage() for each in caplog.records]
    assert first.startswith("10.0.0.7 sent a request that is no HTTP, it was refused (400): 1 ")
    assert ": 4 since the start of this worker" in second


def test_a_client_without_an_address_is_one():
    answers = Counter()
    MalformedRequests(answers).add(None)
    assert answers == {"bad_request": 1}
