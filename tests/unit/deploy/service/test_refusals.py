from collections import Counter

from walle_deploy.service import refusals as module
from walle_deploy.service.refusals import RefusedRequests


def test_all_are_counted_and_the_first_of_a_kind_in_a_minute_is_logged(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now[0])
    counts = Counter()
    requests = RefusedRequests(counts)
    for at_ms in (0.0, 1.0, 59_999.0, 60_000.0, 60_001.0):
        now[0] = at_ms
        requests.add("bad_request", "10.0.0.7", "it is no HTTP")
    requests.add("forbidden", "", "no")
    assert counts == {"bad_request": 5, "forbidden": 1}
    first, second, other = [each.getMessage() for each in caplog.records]
    assert first.startswith("10.0.0.7 was refused: it is no HTTP; 1 such requests since")
    assert "; 4 such requests since" in second
    assert other.startswith("a client was refused: no; 1 such")
